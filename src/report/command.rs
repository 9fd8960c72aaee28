//! `gpushim report`: a run on one screen, or the ranks of a job and the one that stands out.

use std::path::{Path, PathBuf};

use super::build::Report;
use super::findings::Finding;
use crate::cli::iteration_args::IterationArg;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::recordings;
use crate::cli::terminal::{complain, print_json, print_text};
use crate::cli::{files, progress};
use crate::error::{Result, failed};
use crate::fleet::{Fleet, Gathered, Place, Sorted, siblings};
use crate::output::envelope::Envelope;
use crate::output::escape::shown;
use crate::recording::trace_of;

/// Summarise a run's GPU memory on one screen: how much was used, which stacks held it at the peak,
/// and what is unusual.
///
/// A job may have thousands of ranks. The answer names each rank that is unlike the others, then
/// shows the report of the most unusual one. Folders are searched with those in them. Ranks are read from
/// the summaries that `gpushim run` attaches to traces, or else from the traces. Separate runs
/// are shown one after the other. Exit code 1 if a rank of a job stands out or is missing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim report  # of the newest trace here
  gpushim report rank0.trace rank1.trace rank2.trace
  gpushim report /shared/job7  # all ranks below this folder
  gpushim report --job 81234 --keep node0/ node1/")]
pub struct Args {
    /// Trace files, or folders of traces and summaries; the newest trace in the current directory if
    /// none is named, with --job all below it.
    files: Vec<PathBuf>,
    /// Only the job of this name or number, as its launcher gave it; the name of a job that has none.
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Attach the summaries of ranks that this command made to the traces of ended processes.
    #[arg(long)]
    keep: bool,
    /// The most traces of dead ranks that are opened, to name where each allocated last.
    #[arg(long, value_name = "N", default_value_t = 20)]
    open: usize,
    #[command(flatten)]
    iteration: IterationArg,
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let named = match (&args.job, args.files.is_empty()) {
        (Some(_), true) => vec![PathBuf::from(".")],
        _ => files::named(&args.files)?,
    };
    let sorted = Sorted::of(&named, args.job.as_deref())?;
    let jobs = jobs(args, sorted.ranks)?;
    let is_alone = jobs.is_empty() && sorted.runs.len() == 1;
    let worst = jobs.iter().filter_map(Fleet::worst).map(Path::to_path_buf);
    let paths: Vec<PathBuf> = worst.chain(sorted.runs).collect();
    let (mut reports, mut beside) = (Vec::new(), None);
    let outcome = recordings::each(&paths, progress::open, |path, recording| {
        let given = args.iteration.find_in_all(&*recording)?;
        let mut report = Report::of(&*recording, given.as_ref());
        let finding = if is_alone {
            let siblings = siblings::of(&*recording);
            beside = siblings::in_words(path, &siblings);
            siblings::finding(path, siblings)
        } else {
            jobs.iter().find_map(|job| job.finding_of(path))
        };
        report.findings.extend(finding);
        report.findings.sort_by_key(Finding::rank);
        reports.push(report);
        Ok(Outcome::of(&*recording))
    })?;
    let stands_out = jobs.iter().any(Fleet::is_found);
    let is_whole = jobs.iter().all(|job| job.unreadable.is_empty());
    let is_empty = reports.is_empty() && jobs.iter().all(|job| job.ranks.is_empty());
    match args.format {
        Format::Json => {
            for file in jobs.iter().flat_map(|job| &job.unreadable) {
                complain(&file.why);
            }
            let mut findings = reports.iter().flat_map(|report| &report.findings);
            let found = stands_out || findings.any(|finding| finding.kind.is_fault());
            print_json(&Envelope::of_jobs("report", found, jobs, reports))?;
        }
        Format::Text => {
            let mut text = text(&jobs, &reports);
            if let ([summary], [_]) = (&args.files[..], &jobs[..])
                && let Some(trace) = trace_of(summary).filter(|_| summary.is_file())
            {
                let line = format!(
                    "{} is the summary of {}",
                    summary.display(),
                    trace.display()
                );
                text = format!("{}\n{text}", shown(&line));
            }
            if let Some(line) = beside {
                text.push_str(&format!("\n{}\n", shown(&line)));
            }
            print_text(&text)?;
        }
    }
    Ok(match (is_empty, stands_out, is_whole) {
        (false, true, _) => Outcome::Found,
        (false, false, true) => outcome,
        _ => Outcome::Failed,
    })
}

/// Reads the ranks, and compares those of each job.
fn jobs(args: &Args, ranks: Vec<Place>) -> Result<Vec<Fleet>> {
    let is_none = ranks.is_empty();
    let mut jobs = Fleet::all(Gathered::of(ranks, args.keep), args.job.as_deref());
    if let (Some(name), true, false) = (&args.job, jobs.is_empty(), is_none) {
        return Err(failed!(
            "find the job {name}: the ranks there are of other jobs; `gpushim report` without --job shows them"
        ));
    }
    for job in &mut jobs {
        job.open_outliers(args.open);
    }
    Ok(jobs)
}

/// Formats each job with the report of its worst rank, then the other reports, those with findings
/// first.
fn text(jobs: &[Fleet], reports: &[Report]) -> String {
    let is_of = |job: &Fleet, report: &Report| {
        let worst = job.worst().map(|path| path.display().to_string());
        worst.as_ref() == Some(&report.trace)
    };
    let mut texts = Vec::new();
    for job in jobs {
        texts.push(job.to_string());
        let worst = reports.iter().filter(|report| is_of(job, report));
        texts.extend(worst.map(Report::to_string));
    }
    let runs = reports.iter();
    let runs = runs.filter(|report| !jobs.iter().any(|job| is_of(job, report)));
    let (with, without): (Vec<_>, Vec<_>) = runs.partition(|report| !report.findings.is_empty());
    texts.extend(with.into_iter().chain(without).map(Report::to_string));
    texts.join("\n")
}
