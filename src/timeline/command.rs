//! `gpushim timeline`: how did memory go over the run?

use std::path::PathBuf;

use super::plot::columns;
use super::svg::write_svg;
use super::text::TimelineReport;
use crate::cli::common_args::CommonArgs;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::write::write_whole;
use crate::error::Result;

/// Columns of a picture and of JSON: what the trace keeps of a run of any length.
const FINE: usize = 1024;

/// Plot memory over the run, with the minimum and maximum of each interval of time, and the phases of the run.
///
/// The trace keeps this timeline for the whole run, even if events were overwritten. Phases are the longest NVTX
/// ranges.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim timeline run.trace
  gpushim timeline --svg memory.svg gpushim-*.trace")]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
    /// Write the plot to this SVG file instead.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The width of the plot, characters [default: the width of the terminal].
    #[arg(long, value_name = "N")]
    width: Option<u16>,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let is_fine = args.svg.is_some() || args.common.format() == Format::Json;
    let columns = if is_fine { FINE } else { columns(args.width) };
    let (reports, outcome) = args
        .common
        .find(|recording, focus| TimelineReport::of(recording, focus, columns))?;
    let Some(path) = &args.svg else {
        args.common.print(reports)?;
        return Ok(outcome);
    };
    if !reports.is_empty() {
        let mut text = String::new();
        write_svg(&reports, &mut text)?;
        write_whole(path, |out| Ok(out.write_all(text.as_bytes())?))?;
        crate::cli::terminal::say_wrote(path);
    }
    Ok(outcome)
}
