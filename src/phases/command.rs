//! `gpushim phases`: what does each phase of the program do with memory?

use anyhow::Result;

use super::text::PhasesReport;
use crate::cli::common_args::CommonArgs;
use crate::cli::outcome::Outcome;

/// Tell what each range that the program announced (NVTX), and each iteration, allocates, keeps and frees.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  gpushim phases train.trace")]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
}

pub fn main(args: &Args) -> Result<Outcome> {
    args.common.each(PhasesReport::of)
}
