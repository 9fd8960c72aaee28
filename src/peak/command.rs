//! `gpushim peak`: who held memory when most was live, or at another moment?

use anyhow::Result;

use super::text::PeakReport;
use crate::cli::common_args::{CommonArgs, moment};
use crate::cli::outcome::Outcome;
use crate::ledger::Moment;

/// List who held memory when most was live, or at any other moment.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim peak train.trace
  gpushim peak --at 12.5 train.trace  # 12.5 s after the start
  gpushim peak --at end --gpu 1 train.trace")]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
    /// So many seconds after the start, or `end`, instead of the peak.
    #[arg(long, value_name = "SECONDS", value_parser = moment)]
    at: Option<Moment>,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let moment = args.at.unwrap_or(Moment::Peak);
    args.common
        .each(|recording, focus| PeakReport::of(recording, focus, moment, &mut *recording.names()))
}
