//! `gpushim timeline`: how did memory go over the run?

use super::plot::columns;
use super::text::TimelineReport;
use crate::cli::common_args::CommonArgs;
use crate::cli::outcome::{Format, Outcome};
use crate::error::Result;

/// Columns of JSON: as many as the trace keeps of a run of any length.
const FINE: usize = 1024;

/// Plot memory over the run, with the minimum and maximum of each interval of time, and the phases
/// of the run.
///
/// The trace keeps this timeline for the whole run, even if events were overwritten. Phases are the
/// longest NVTX ranges.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim timeline run.trace
  gpushim timeline --width 200 gpushim-*.trace")]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
    /// The width of the plot, characters [default: the width of the terminal].
    #[arg(long, value_name = "N")]
    width: Option<u16>,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let columns = match args.common.format() {
        Format::Json => FINE,
        Format::Text => columns(args.width),
    };
    args.common
        .each(|recording, focus| TimelineReport::of(recording, focus, columns))
}
