//! `gpushim drops`: when does memory fall, why, and does it come back?

use anyhow::Result;

use super::text::DropsReport;
use crate::cli::common_args::CommonArgs;
use crate::cli::outcome::Outcome;

/// Tell when memory falls suddenly, by how much, why, and whose blocks went.
///
/// A drop is a fall by at least a tenth of the run's peak, until memory has risen again by as much. Drops of the
/// same cause and stack are told once: `each iteration`, or how often. A drop lasts if it ends a tenth of the
/// peak lower than the 32 before it, what is live later always stays a tenth of the peak below what it was, and
/// the run goes on: it allocates as much again. So does a context that is reset with the memory in it.
/// Exit code 1 if a drop lasts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim drops run.trace
  gpushim drops --of memory --gpu 1 --format json run.trace")]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
}

pub fn main(args: &Args) -> Result<Outcome> {
    args.common
        .each(|recording, focus| DropsReport::of(recording, focus, &mut *recording.names()))
}
