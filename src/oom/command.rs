//! `gpushim oom`: what happened when memory ran out?

use anyhow::Result;

use super::text::OomReport;
use crate::cli::common_args::CommonArgs;
use crate::cli::outcome::Outcome;

/// Tell of each request that could not be met: what was asked for, what there was, why it did not fit,
/// who held the rest, and what would have helped.
///
/// Exit code 1 if there is any.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim oom train.trace
  gpushim oom --of memory train.trace  # what the driver was asked for")]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
}

pub fn main(args: &Args) -> Result<Outcome> {
    args.common
        .each(|recording, focus| OomReport::of(recording, focus, &mut *recording.names()))
}
