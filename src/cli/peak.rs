//! `gpushim peak`: who held memory when most was live, or at another moment?

use anyhow::Result;
use gpushim_core::analysis::Moment;
use gpushim_core::report::peak::PeakReport;

use super::Outcome;
use super::asked::Asked;

/// List who held memory when most was live, or at any other moment.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim peak train.trace
  gpushim peak --at 12.5 train.trace  # 12.5 s after the start
  gpushim peak --at end --gpu 1 train.trace")]
pub struct Args {
    #[command(flatten)]
    asked: Asked,
    /// So many seconds after the start, or `end`, instead of the peak.
    #[arg(long, value_name = "SECONDS", value_parser = moment)]
    at: Option<Moment>,
}

pub fn moment(text: &str) -> Result<Moment, String> {
    if text == "end" {
        return Ok(Moment::End);
    }
    let seconds = text.strip_suffix('s').unwrap_or(text).parse::<f64>();
    let seconds = seconds.ok().filter(|seconds| (0.0..1e10).contains(seconds));
    let seconds = seconds.ok_or("expected seconds like 12.5, or end")?;
    Ok(Moment::Ns((seconds * 1e9) as u64))
}

pub fn main(args: &Args) -> Result<Outcome> {
    let moment = args.at.unwrap_or(Moment::Peak);
    args.asked
        .each(|recording, focus| PeakReport::of(recording, focus, moment, &mut *recording.names()))
}
