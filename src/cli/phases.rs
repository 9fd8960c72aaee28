//! `gpushim phases`: what does each phase of the program do with memory?

use anyhow::Result;
use gpushim_core::report::phases::PhasesReport;

use super::Outcome;
use super::asked::Asked;

/// Tell what each range that the program announced (NVTX), and each iteration, allocates, keeps and frees.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  gpushim phases train.trace")]
pub struct Args {
    #[command(flatten)]
    asked: Asked,
}

pub fn main(args: &Args) -> Result<Outcome> {
    args.asked.each(PhasesReport::of)
}
