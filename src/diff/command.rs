//! `gpushim diff`: what changed between two runs?

use std::path::PathBuf;

use anyhow::Result;

use super::compare::DiffReport;
use crate::cli::common_args::Selection;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::terminal::{print_json, print_text, say_problems};
use crate::output::finding::{Finding, Shown};
use crate::recording;

/// Compare two runs: peaks, phases, iterations, and who held memory at the peak.
///
/// For example a training with and without checkpointing. Exit code 1 if something changed by more than a
/// hundredth of the peak.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim diff before.trace after.trace
  gpushim diff --of memory baseline.trace today.trace")]
pub struct Args {
    /// The run before.
    before: PathBuf,
    /// The run after.
    after: PathBuf,
    #[command(flatten)]
    selection: Selection,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let open = |path: &PathBuf| {
        let recording = recording::open(path)?;
        say_problems(&*recording);
        anyhow::Ok(recording)
    };
    let (before, after) = (open(&args.before)?, open(&args.after)?);
    let diff = DiffReport::of(
        (&*before, args.selection.focus(&*before)),
        (&*after, args.selection.focus(&*after)),
    );
    match args.format {
        Format::Json => print_json(&diff)?,
        Format::Text => print_text(&Shown(&diff, args.selection.top).to_string())?,
    }
    Ok(if diff.is_found() {
        Outcome::Found
    } else {
        Outcome::Fine
    })
}
