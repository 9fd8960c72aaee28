//! `gpushim timeline`: how did memory go over the run?

use std::path::PathBuf;

use anyhow::Result;

use super::plot::columns;
use super::svg::write_svg;
use super::text::TimelineReport;
use crate::cli::common_args::CommonArgs;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::write::write_whole;

/// Columns of a picture and of JSON: what the trace keeps of a run of any length.
const FINE: usize = 1024;

/// Show how memory went over the run, with the least and the most of each stretch of time, and its phases.
///
/// The trace keeps this of the whole run, also where events were overwritten. Phases are the ranges that the
/// program announced (NVTX), those that took longest.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim timeline run.trace
  gpushim timeline --svg memory.svg gpushim-*.trace")]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
    /// Write a picture into this file instead: SVG, for any browser, light and dark.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Letters of a line [default: what the terminal has].
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
