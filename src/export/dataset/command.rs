//! `gpushim export --to parquet`: traces and summaries into a dataset.

use std::path::{Path, PathBuf};

use super::Dataset;
use crate::cli::files;
use crate::cli::outcome::Outcome;
use crate::cli::terminal::{complain, say_problems};
use crate::error::Result;
use crate::fleet::{self, Place, RankSummary};
use crate::recording;

/// Writes traces and summaries, and those in folders, as tables.
pub fn main(files: &[PathBuf], dataset: Dataset<'_>) -> Result<Outcome> {
    let places = fleet::places(&files::named(files)?)?;
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
