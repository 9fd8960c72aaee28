//! `gpushim tune`: recommends settings for runs like the recorded ones.

use std::time::Duration;

use super::report::TuneReport;
use crate::cli::common_args::size;
use crate::cli::iteration_args::IterationArgs;
use crate::cli::outcome::Outcome;
use crate::cli::progress;
use crate::error::{Result, failed};
use crate::output::answer::Subject;
use gpushim_simulate::tune::{Options, Recorded, tune};

/// Try gpushim's policies and parameters on recordings, without a GPU, and recommend settings for
/// similar runs: the memory and driver calls of each, what the recommendation saves, and its
/// confidence.
///
/// Candidates are the settings whose driver calls take at most 2 % (--within) of the run after its
/// start; if there are none, the one with the least time. Of these the recommendation has the
/// least memory, then the least time, then the fewest changes. Up to 0.5 % more memory and 5 % more
/// time count as equal. Several recordings are runs of one program, or ranks of one job, and
/// get one recommendation. It is validated on data that it was not chosen from: on each recording
/// in turn, or for one recording on the second half of its iterations. If nothing holds 3 % less
/// than what there was, the recommendation is to change nothing. A trace that lacks its beginning
/// is replayed from what was live then; a snapshot without a history is refused. Exit code 1 if
/// nothing fits into the limit.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim tune train.trace
  gpushim tune --limit 40G --within 5 rank0.trace rank1.trace
  gpushim tune --format json snapshot.pickle")]
pub struct Args {
    #[command(flatten)]
    common: IterationArgs,
    /// The memory of the device, such as 40G.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    limit: Option<u64>,
    /// The most time that driver calls may take, percent of the duration of the runs.
    #[arg(long, value_name = "PERCENT", value_parser = share, default_value = "2")]
    within: f64,
    /// Time to try settings, seconds.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let (found, outcome) = args.common.find(|recording, focus, given| {
        let subject = Subject::of(recording, focus);
        (subject, Recorded::of(recording, focus, given))
    })?;
    if found.is_empty() {
        return Ok(outcome);
    }
    let (subjects, recorded): (Vec<Subject>, Vec<Recorded>) = found.into_iter().unzip();
    let has_requests = recorded.iter().any(|one| !one.devices.is_empty());
    if has_requests && !recorded.iter().any(Recorded::has_history) {
        let traces: Vec<&str> = subjects.iter().map(|one| one.trace.as_str()).collect();
        return Err(failed!(
            "recommend settings from {}: it says what was live, but has no history of requests (record one, for a \
             snapshot with torch.cuda.memory._record_memory_history())",
            traces.join(", ")
        ));
    }
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
    let report = TuneReport::new(subjects, &recorded, &options, tuned);
    args.common.answer((vec![report], outcome))
}

fn share(text: &str) -> Result<f64> {
    let percent = text.trim_end_matches('%').trim().parse().ok();
    percent
        .filter(|percent: &f64| (0.0..=100.0).contains(percent))
        .ok_or_else(|| failed!("expected a number from 0 to 100"))
}
