//! `gpushim report`: what a trace tells, on one screen.

use std::path::PathBuf;

use anyhow::Result;

use super::build::Report;
use super::job::Job;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::recordings;
use crate::cli::terminal::{print_json, print_text};
use crate::cli::{files, progress};

/// Tell what a run did with GPU memory, on one screen: how much of it, who held it at the peak, and what stands
/// out.
///
/// Several files, or a directory of them, are the ranks of one job: how evenly memory lies among them, who peaks
/// when and who is unlike the others, and then the report of the one that peaks highest.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim report  # of the newest trace here
  gpushim report rank0.trace rank1.trace")]
pub struct Args {
    /// Trace files, or directories of them; the newest in the current directory if none is named.
    files: Vec<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(serde::Serialize)]
struct Reports {
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<Job>,
    reports: Vec<Report>,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let mut reports = Vec::new();
    let paths = files::named_or_newest(&args.files)?;
    let outcome = recordings::each(&paths, progress::open, |_, recording| {
        reports.push(Report::of(&*recording));
        Ok(())
    })?;
    let job = Job::of(&reports);
    match args.format {
        Format::Json => print_json(&Reports { job, reports })?,
        Format::Text => print_text(&text(job.as_ref(), &reports))?,
    }
    Ok(outcome)
}

/// The job, if it is one, and the report of the rank that peaks highest.
fn text(job: Option<&Job>, reports: &[Report]) -> String {
    let Some(job) = job else {
        return reports.iter().map(Report::to_string).collect();
    };
    let highest = job.highest.and_then(|index| job.ranks.get(index));
    let its = |report: &&Report| highest.is_some_and(|rank| rank.trace == report.trace);
    let report = reports.iter().find(its).or(reports.first());
    let report = report.map(Report::to_string).unwrap_or_default();
    format!("{job}\n{report}")
}
