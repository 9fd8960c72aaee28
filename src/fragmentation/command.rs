//! `gpushim fragmentation`: how much of what is held is of no use, and what keeps it?

use anyhow::Result;

use super::text::FragmentationReport;
use crate::cli::common_args::{CommonArgs, moment};
use crate::cli::outcome::Outcome;
use crate::ledger::Moment;

/// Tell how much reserved memory is free but in pieces, with a map of it, and what keeps the pieces.
///
/// A segment can serve a large request, or go back to the driver, only once all blocks in it are freed. It is
/// nearly empty if at most an eighth of it is in use: the rest is pinned by what is left. Looked at is the
/// moment at which most was reserved, just after the request that it was for: what was free then was of no
/// use. Segments are those of the pool, or below a framework's tensors those of the framework's cache. Exit
/// code 1 if a fifth of what a device holds, and 48 MiB at least, lie free beside blocks.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim fragmentation run.trace
  gpushim fragmentation --at end --of memory run.trace
  gpushim fragmentation snapshot.pickle")]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
    /// So many seconds after the start, or `end`, instead of the moment at which most was reserved.
    #[arg(long, value_name = "SECONDS", value_parser = moment)]
    at: Option<Moment>,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let moment = args.at.unwrap_or(Moment::Peak);
    args.common.each(|recording, focus| {
        FragmentationReport::of(recording, focus, moment, &mut *recording.names())
    })
}
