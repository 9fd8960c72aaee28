//! `gpushim growth`: does memory grow with each iteration, and who keeps it?

use anyhow::Result;

use super::text::GrowthReport;
use crate::cli::common_args::CommonArgs;
use crate::cli::outcome::Outcome;

/// Tell whether memory grows with each iteration, by how much, who keeps it, and how long it will last.
///
/// Iterations are found by the ranges that the program announced (NVTX), or by what repeats among its
/// allocations. Exit code 1 if memory grows.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim growth train.trace
  gpushim growth --of host train.trace  # pinned host memory")]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
}

pub fn main(args: &Args) -> Result<Outcome> {
    args.common
        .each(|recording, focus| GrowthReport::of(recording, focus, &mut *recording.names()))
}
