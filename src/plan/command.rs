//! `gpushim plan`: where should each block of the next run go?

use std::path::PathBuf;

use super::text::PlanReport;
use crate::cli::outcome::{Format, Outcome};
use crate::cli::progress::Steps;
use crate::cli::terminal::{print_json, print_text, say_problems};
use crate::cli::write::write_whole;
use crate::cli::{files, progress};
use crate::error::{Result, failed};
use crate::ledger::Focus;
use crate::output::answer::{Answer, Shown};
use crate::output::envelope::Envelope;
use crate::recording::Recording;
use gpushim_trace::{Class, Kind, Layer};

/// Choose an address for each block of a recorded run from all lifetimes, and write a plan for
/// `GPUSHIM_POLICY=plan:FILE`.
///
/// Plans are for runs that repeat. As long as the program requests the same sizes in the same order, each block gets
/// its planned address; from the first request that differs on, the policy `vmm` serves all requests. If the
/// recording becomes periodic, one period is planned and followed for as long as it repeats; after a request that
/// differs, it is followed again from the next period on. The addresses are found by search, which ends after a fixed
/// number of steps in all, some seconds; the output says how far they are from the best possible at most. The period, the
/// whole run and vmm alone are simulated, and what holds least memory is written. The recording must have
/// all events (GPUSHIM_TRACE_MODE=full for a long run). Exit code 1 if there is nothing to plan.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpushim plan train.trace -o train.plan
  gpushim plan --tensors snapshot.pickle -o train.plan")]
pub struct Args {
    /// The recording; the newest trace in the current directory if none is named.
    file: Option<PathBuf>,
    /// The file to write.
    #[arg(short, long, value_name = "FILE", default_value = "gpushim.plan")]
    output: PathBuf,
    /// Plan a framework's tensors, for a run whose tensors are in gpushim's pools (GPUSHIM_TAKEOVER).
    #[arg(long)]
    tensors: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub fn main(args: &Args) -> Result<Outcome> {
    let files: Vec<PathBuf> = args.file.iter().cloned().collect();
    let files = files::named_or_newest(&files)?;
    let [path] = files.as_slice() else {
        return Err(failed!(
            "make one plan of several recordings: name only one file"
        ));
    };
    let recording = progress::open(path)?;
    say_problems(&*recording);
    let focus = focus(&*recording, args.tensors);
    let bar = Steps::new();
    let mut watch = |done: u64, of: u64| {
        let thousands = |steps: u64| usize::try_from(steps / 1000).unwrap_or(usize::MAX);
        bar.show(
            "searching, thousands of steps",
            thousands(done),
            thousands(of),
        );
    };
    let file = args.output.display().to_string();
    let report = PlanReport::of(&*recording, focus, file, &mut watch);
    bar.clear();
    let found = report.is_found();
    if !found {
        // All at once: a run that begins meanwhile finds the old plan or the new one.
        let text = report.plans().to_text();
        write_whole(&args.output, |out| Ok(out.write_all(text.as_bytes())?))?;
    }
    match args.format {
        Format::Text => print_text(&Shown(&report, 0).to_string())?,
        Format::Json => {
            print_json(&Envelope::new(PlanReport::COMMAND, found, vec![report]))?;
        }
    }
    Ok(if found { Outcome::Found } else { Outcome::Fine })
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
