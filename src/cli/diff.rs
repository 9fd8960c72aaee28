//! `gpushim diff`: what changed between two runs?

use std::path::PathBuf;

use anyhow::Result;
use gpushim_core::recording;
use gpushim_core::report::diff::DiffReport;
use gpushim_core::report::findings::{Finding, Shown};

use super::asked::Look;
use super::{Format, Outcome, print_json, print_text, say_problems};

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
    look: Look,
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
        (&*before, args.look.focus(&*before)),
        (&*after, args.look.focus(&*after)),
    );
    match args.format {
        Format::Json => print_json(&diff)?,
        Format::Text => print_text(&Shown(&diff, args.look.top).to_string())?,
    }
    Ok(if diff.is_found() {
        Outcome::Found
    } else {
        Outcome::Fine
    })
}
