//! `gpushim diff`: compares two runs.

use std::path::PathBuf;

use super::figures::figures;
use super::report::DiffReport;
use crate::cli::common_args::{Selection, percentage, print_answers};
use crate::cli::iteration_args::IterationArg;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::terminal::say_problems;
use crate::error::{Error, Result};
use crate::output::answer::Subject;
use crate::recording::{self, Recording};

/// Compare two runs: peaks, phases, iterations, and the stacks that held memory at the peak.
///
/// For example a training run with and without checkpointing. Exit code 1 if the peak, a phase or a
/// stack grew by more than --max-growth of the peak. Less memory, and what only one of the runs has,
/// is no regression.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim diff before.trace after.trace
  gpushim diff --of memory baseline.trace today.trace
  gpushim diff --max-growth 5 baseline.trace today.trace")]
pub struct Args {
    /// The run before.
    before: PathBuf,
    /// The run after.
    after: PathBuf,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    iteration: IterationArg,
    /// By how much the peak, each phase and each stack may grow, in percent of the peak before.
    #[arg(long, value_name = "PERCENT", value_parser = percentage, default_value = "1")]
    max_growth: f64,
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let open = |path: &PathBuf| {
        let recording = recording::open(path)?;
        say_problems(&*recording);
        Ok::<_, Error>(recording)
    };
    let (before, after) = (open(&args.before)?, open(&args.after)?);
    let side = |recording: &dyn Recording| {
        let focus = args.selection.focus(recording);
        let given = args.iteration.find(recording, focus)?;
        let figures = figures(recording, focus, given.as_ref());
        Ok::<_, Error>((Subject::of(recording, focus), figures))
    };
    let ((run_before, before), (run_after, after)) = (side(&*before)?, side(&*after)?);
    let runs = [run_before, run_after];
    let diff = DiffReport::of(runs, &[before, after], args.max_growth);
    print_answers(vec![diff], Outcome::Fine, args.format, args.selection.top)
}
