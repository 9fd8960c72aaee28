//! `gpushim report`: what a trace tells, on one screen.

use std::path::PathBuf;

use anyhow::Result;
use gpushim_core::recording;
use gpushim_core::report::Report;

use super::{Format, Outcome, complain, print_json, print_text, traces};

/// Tell what a run did with GPU memory, on one screen.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim report  # of the newest trace here
  gpushim report rank0.trace rank1.trace")]
pub struct Args {
    /// Trace files; the newest in the current directory if none is named.
    files: Vec<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(serde::Serialize)]
struct Reports {
    reports: Vec<Report>,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let mut outcome = Outcome::Fine;
    let mut reports = Vec::new();
    for path in traces::named_or_newest(&args.files)? {
        match recording::open(&path) {
            Ok(trace) => reports.push(Report::of(&*trace)),
            Err(error) => {
                complain(&error);
                outcome = Outcome::Failed;
            }
        }
    }
    match args.format {
        Format::Json => print_json(&Reports { reports })?,
        Format::Text => {
            let texts: Vec<_> = reports.iter().map(Report::to_string).collect();
            print_text(&texts.join("\n"))?;
        }
    }
    Ok(outcome)
}
