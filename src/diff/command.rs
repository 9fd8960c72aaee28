//! `gpushim diff`: compares two runs.

use std::path::PathBuf;

use super::compare::{DiffReport, Run};
use crate::cli::common_args::Selection;
use crate::cli::iteration_args::IterationArg;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::terminal::{print_json, print_text, say_problems};
use crate::error::{Error, Result, failed};
use crate::ledger::Focus;
use crate::loops::Given;
use crate::output::answer::{Answer, Shown};
use crate::output::envelope::Envelope;
use crate::recording::{self, Recording};

/// Compare two runs: peaks, phases, iterations, and the stacks that held memory at the peak.
///
/// For example a training run with and without checkpointing. Exit code 1 if the peak, or that of a phase,
/// rose by more than --max-growth; less memory, and what only one of the runs has, is no regression.
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
    /// By how much the peak, and that of each phase, may rise, in percent of the peak before.
    #[arg(long, value_name = "PERCENT", value_parser = part, default_value = "1")]
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
    let sides = [side(args, &*before)?, side(args, &*after)?];
    let [before, after] = sides.each_ref().map(|(recording, focus, given)| Run {
        recording: *recording,
        focus: *focus,
        given: given.as_ref(),
    });
    let diff = DiffReport::of(&before, &after, args.max_growth);
    let found = diff.is_found();
    match args.format {
        Format::Text => print_text(&Shown(&diff, args.selection.top).to_string())?,
        Format::Json => {
            print_json(&Envelope::new(DiffReport::COMMAND, found, vec![diff]))?;
        }
    }
    Ok(if found { Outcome::Found } else { Outcome::Fine })
}

/// Selects the compared memory of a recording, and the start of its iterations.
fn side<'a>(
    args: &Args,
    recording: &'a dyn Recording,
) -> Result<(&'a dyn Recording, Focus, Option<Given>)> {
    let focus = args.selection.focus(recording);
    Ok((recording, focus, args.iteration.find(recording, focus)?))
}

/// Parses a percentage to a part of 1.
fn part(text: &str) -> Result<f64> {
    let number = text.trim_end_matches('%').trim().parse::<f64>();
    let number = number.ok().filter(|number| (0.0..=1e6).contains(number));
    number
        .map(|number| number / 100.0)
        .ok_or_else(|| failed!("expected a percentage like 1 or 2.5"))
}
