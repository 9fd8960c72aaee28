//! `gpushim report`: a run on one screen.

use std::path::PathBuf;

use super::build::Report;
use super::job::Job;
use super::{imbalance, siblings};
use crate::cli::iteration_args::IterationArg;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::recordings;
use crate::cli::terminal::{print_json, print_text};
use crate::cli::{files, progress};
use crate::error::Result;
use crate::output::envelope::Envelope;
use crate::output::escape::shown;

/// Summarise a run's GPU memory on one screen: how much was used, which stacks held it at the peak,
/// and what is unusual.
///
/// Several files, or a directory of them, are compared if they are the ranks of one job, as its
/// launcher numbered them: the report names the ranks that differ from the others, and then shows
/// the rank with the highest peak. Of separate runs it shows each.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim report  # of the newest trace here
  gpushim report rank0.trace rank1.trace")]
pub struct Args {
    /// Trace files, or directories of them; the newest in the current directory if none is named.
    files: Vec<PathBuf>,
    #[command(flatten)]
    iteration: IterationArg,
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let (mut reports, mut siblings) = (Vec::new(), Vec::new());
    let paths = files::named_or_newest(&args.files)?;
    let outcome = recordings::each_on_its_own(&paths, progress::open, |_, recording| {
        let given = args.iteration.find_in_all(&*recording)?;
        let mut report = Report::of(&*recording, given.as_ref());
        if let [path] = &paths[..] {
            let beside = siblings::of(&*recording);
            imbalance::of_siblings(&beside, &mut report);
            siblings.extend(siblings::in_words(path, &beside));
        }
        reports.push(report);
        Ok(())
    })?;
    let job = Job::of(&reports);
    if let Some(job) = &job {
        imbalance::of_job(job, &mut reports);
    }
    match args.format {
        Format::Json => {
            let mut findings = reports.iter().flat_map(|report| &report.findings);
            let found = findings.any(|finding| finding.kind.is_fault());
            print_json(&Envelope::of_job("report", found, job, reports))?;
        }
        Format::Text => {
            print_text(&text(job.as_ref(), &reports))?;
            if let Some(line) = siblings.first() {
                print_text(&format!("\n{}\n", shown(line)))?;
            }
        }
    }
    Ok(outcome)
}

/// Formats the job, if there is one, and the report of the rank with the highest peak.
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
