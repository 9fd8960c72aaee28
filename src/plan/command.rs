//! `gpushim plan`: where should each block of the next run go?

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::text::PlanReport;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::terminal::{print_json, print_text, say_problems};
use crate::cli::write::write_whole;
use crate::cli::{files, progress};
use crate::ledger::Focus;
use crate::output::finding::{Finding, Shown};
use crate::recording::Recording;
use gpushim_trace::{Class, Kind, Layer};

/// Choose a place for each block of a run that was recorded, knowing all lifetimes, and write them to a file that
/// `GPUSHIM_POLICY=plan:FILE` follows.
///
/// For runs that repeat themselves: as long as the program asks for the same sizes in the same order, each block
/// goes where the plan says; from the first request that differs on, the policy `vmm` serves alone. Where the
/// recording becomes periodic, one period is planned, and followed for as long as it repeats. The recording has to
/// be whole (GPUSHIM_TRACE_MODE=full if the run is long). Exit code 1 if there is nothing to plan.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim plan train.trace -o train.plan
  gpushim plan --tensors snapshot.pickle -o train.plan")]
pub struct Args {
    /// The recording; the newest trace in the current directory if none is named.
    file: Option<PathBuf>,
    /// Where the plan goes.
    #[arg(short, long, value_name = "FILE", default_value = "gpushim.plan")]
    output: PathBuf,
    /// Plan for a framework's tensors, for a run that will have them in our pools (GPUSHIM_TAKEOVER).
    #[arg(long)]
    tensors: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let files: Vec<PathBuf> = args.file.iter().cloned().collect();
    let files = files::named_or_newest(&files)?;
    let [path] = files.as_slice() else {
        bail!("make a plan of several recordings: name one");
    };
    let recording = progress::open(path)?;
    say_problems(&*recording);
    let focus = focus(&*recording, args.tensors);
    let report = PlanReport::of(&*recording, focus, args.output.display().to_string());
    if !report.is_found() {
        // All at once: a run that begins meanwhile finds the old plan or the new one.
        let text = report.plans().to_text();
        write_whole(&args.output, |out| Ok(out.write_all(text.as_bytes())?))?;
    }
    match args.format {
        Format::Json => print_json(&report)?,
        Format::Text => print_text(&Shown(&report, 0).to_string())?,
    }
    Ok(if report.is_found() {
        Outcome::Found
    } else {
        Outcome::Fine
    })
}

/// What the pools serve: the driver's memory where the recording has any, else tensors.
fn focus(recording: &dyn Recording, tensors: bool) -> Focus {
    let is_of_driver = |class| matches!(class, Class::Device | Class::PoolAsync);
    let mut events = recording.events().map(|record| record.event);
    if tensors || !events.any(|event| event.kind == Kind::Alloc && is_of_driver(event.class)) {
        return Focus::of(recording, None);
    }
    Focus {
        layer: Layer::Device,
        device: None,
    }
}
