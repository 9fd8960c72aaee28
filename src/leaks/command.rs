//! `gpushim leaks`: what is left behind, by whom?

use anyhow::Result;

use super::text::LeaksReport;
use crate::cli::common_args::CommonArgs;
use crate::cli::outcome::Outcome;

/// List what is still live before the last iteration, or at the end, by stack and age.
///
/// Who leaves blocks behind in iteration after iteration comes first. Exit code 1 if somebody does.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim leaks train.trace
  gpushim leaks --top 30 --format json train.trace")]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
}

pub fn main(args: &Args) -> Result<Outcome> {
    args.common
        .each(|recording, focus| LeaksReport::of(recording, focus, &mut *recording.names()))
}
