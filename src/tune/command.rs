//! `gpushim tune`: which settings would have served these runs best?

use std::time::Duration;

use anyhow::Result;

use super::find::{Options, tune};
use super::recorded::Recorded;
use super::report::TuneReport;
use crate::cli::common_args::CommonArgs;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::progress;
use crate::cli::terminal::{print_json, print_text};
use crate::output::finding::{Shown, Subject};
use gpushim_config::size;

/// Try gpushim's policies and their parameters on recordings, without a GPU, and advise the settings for runs like
/// them: what they would have held and asked of the driver, what that saves, and how sure it is.
///
/// The advice is the least memory (0.5 % more counts as the same), then the least time (5 % more counts as the same),
/// then the fewest changes, among those whose driver calls take at most 2 % (--within) of the run after its start, or
/// the least time if none does. Several recordings are runs of one program, or ranks of one job: one advice serves all
/// of them. It is tried on parts that it was not chosen by: on each recording in turn, or of one on the second half of
/// its iterations. Exit code 1 if nothing fits into the limit.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim tune train.trace
  gpushim tune --limit 40G --within 5 rank0.trace rank1.trace
  gpushim tune --format json snapshot.pickle")]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
    /// The most memory that can be held, such as 40G.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    limit: Option<u64>,
    /// The most that driver calls may take, percent of the duration of the runs.
    #[arg(long, value_name = "PERCENT", value_parser = share, default_value = "2")]
    within: f64,
    /// How long to try.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let (found, outcome) = args.common.find(|recording, focus| {
        let subject = Subject::of(recording, focus);
        (subject, Recorded::of(recording, focus))
    })?;
    if found.is_empty() {
        return Ok(outcome);
    }
    let (subjects, recorded): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let options = Options {
        within: args.within,
        limit: args.limit,
        budget: Duration::from_secs(args.seconds.into()),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let bar = progress::Steps::new();
    let tuned = tune(&recorded, &options, &|progress| {
        bar.show(progress.what, progress.done, progress.of);
    });
    bar.clear();
    let nothing_fits = tuned.closest.is_some();
    let report = TuneReport::new(subjects, &recorded, &options, tuned);
    match args.common.format() {
        Format::Json => print_json(&report)?,
        Format::Text => print_text(&Shown(&report, args.common.top()).to_string())?,
    }
    Ok(match outcome {
        Outcome::Fine if nothing_fits => Outcome::Found,
        outcome => outcome,
    })
}

fn bytes(text: &str) -> Result<u64, String> {
    size(text).ok_or_else(|| "a number of bytes, such as 512M or 40G".to_string())
}

fn share(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').trim().parse().ok();
    percent
        .filter(|percent: &f64| (0.0..=100.0).contains(percent))
        .ok_or_else(|| "a number from 0 to 100".to_string())
}
