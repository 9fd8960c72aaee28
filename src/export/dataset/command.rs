//! `gpushim export parquet`: traces and summaries into a dataset.

use std::path::{Path, PathBuf};

use super::Dataset;
use crate::cli::files;
use crate::cli::outcome::Outcome;
use crate::cli::terminal::{complain, say_problems};
use crate::error::Result;
use crate::fleet::{self, Place, RankSummary};
use crate::recording;

/// Write traces and summaries as tables of Parquet files, for DuckDB, Spark and others.
///
/// Tables of events and of summaries, partitioned by job, host and rank, with a file for each
/// process: a trace that is written again replaces its files, others are left as they are. Folders
/// are searched with those in them.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Traces, summaries, other recordings, and folders of those; the newest trace in the current
    /// directory if none is named.
    #[arg(value_name = "FILE|DIR")]
    files: Vec<PathBuf>,
    /// The folder of the tables; made if it is not there.
    #[arg(long, value_name = "DIR")]
    dataset: PathBuf,
    /// The name of the job of all these processes; that which the launcher gave each if none is named.
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let dataset = Dataset {
        folder: &args.dataset,
        job: args.job.as_deref(),
    };
    let places = fleet::places(&files::named(&args.files)?)?;
    let added = fleet::each(&places, "writing", |place| add(dataset, place));
    let mut outcome = Outcome::Fine;
    for error in added.iter().flatten() {
        complain(error);
        outcome = Outcome::Failed;
    }
    Ok(outcome)
}

/// Adds a process. Returns the errors.
fn add(dataset: Dataset<'_>, place: &Place) -> Vec<String> {
    let opened = place.trace.as_ref().map(|path| recording::open(path));
    let mut problems = Vec::new();
    let mut done =
        |result: Result<()>| problems.extend(result.err().map(|error| error.to_string()));
    match opened {
        Some(Ok(recording)) => {
            say_problems(&*recording);
            // The summary as `gpushim report` reads it from the folder.
            let is_attached = || {
                let attached = place.trace.as_deref().map(fleet::read_attached);
                matches!(attached, Some(Ok(Some(_))))
            };
            let is_kept = place.summary.is_some() || is_attached();
            let kept = is_kept.then(|| fleet::read(place, false).0);
            let summary = kept
                .flatten()
                .unwrap_or_else(|| RankSummary::read(&*recording));
            done(dataset.add(&*recording, &summary).map(drop));
        }
        broken => {
            if let Some(Err(error)) = broken {
                done(Err(error));
            }
            done(of_summary(dataset, place.summary.as_deref()));
        }
    }
    problems
}

/// Adds the summary of a trace that no longer exists.
fn of_summary(dataset: Dataset<'_>, path: Option<&Path>) -> Result<()> {
    match path {
        Some(path) => dataset.add_summary(&fleet::read_summary(path)?, path),
        None => Ok(()),
    }
}
