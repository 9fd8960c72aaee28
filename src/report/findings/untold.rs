//! Finds the questions that a recording leaves open, and how to record the answers next time.

use serde::Serialize;

use crate::growth::Growth;
use crate::loops::Told;
use crate::output::units::{percent, span};
use crate::recording::Recording;
use crate::report::overview::Overview;

/// Least share of the peak without stacks that leaves the functions open.
const WITHOUT_STACK: f64 = 0.5;

/// Subject of a question without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Topic {
    /// Functions that hold memory.
    Functions,
    /// Memory that iterations keep.
    Growth,
    /// Events before the first one recorded.
    Beginning,
    /// Any course of events: there is one moment.
    History,
}

/// A question that the recording does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Untold {
    /// What it is about.
    pub topic: Topic,
    /// Question without an answer, and the reason.
    pub what: String,
    /// Way to record next time.
    pub record: String,
}

/// Finds all open questions of a report.
pub fn find(recording: &dyn Recording, overview: &Overview) -> Vec<Untold> {
    let is_of_torch = recording.format().starts_with("PyTorch");
    let mut untold = Vec::new();
    if recording.is_one_moment() {
        return vec![Untold {
            topic: Topic::History,
            what: "What happened before it was taken, and which functions hold memory: this snapshot holds one moment \
                   and has no history."
                .to_string(),
            record: "torch.cuda.memory._record_memory_history() before the model is made records them".to_string(),
        }];
    }
    let Some(main) = overview.layers.first() else {
        return untold;
    };
    let peaks = || main.peaks.iter().map(|(_, peak)| peak);
    let held: u64 = peaks().fold(0, |sum, peak| sum.saturating_add(peak.bytes));
    let without = peaks().flat_map(|peak| &peak.holders);
    let without = without.filter(|held| recording.frames(held.stack) == 0);
    let without: u64 = without.fold(0, |sum, held| sum.saturating_add(held.bytes));
    if without > 0 && without as f64 >= WITHOUT_STACK * held as f64 {
        untold.push(Untold {
            topic: Topic::Functions,
            what: format!(
                "Which functions hold memory: {} of it has no stack.",
                percent(without as f64, held as f64)
            ),
            record: if is_of_torch {
                "torch.cuda.memory._record_memory_history() before the model is made records them"
            } else {
                "GPUSHIM_STACKS=all (`gpushim run --stacks all`) records them"
            }
            .to_string(),
        });
    }
    let events = overview.summary.events.readable;
    let has_shown = Growth::of(&main.followed);
    let judgement = has_shown.as_ref().map(|growth| &growth.judgement);
    let is_told = judgement.is_some_and(|one| matches!(one.told, Told::Sure | Told::Likely));
    if events > 0 && !is_told {
        let why = match (&main.followed.inside, judgement) {
            (_, Some(judgement)) => judgement.why.clone(),
            (Some(call), None) => format!("all that comes again is inside one call of `{call}`"),
            (None, None) => "nothing comes again often enough to be a pass of a loop".to_string(),
        };
        untold.push(Untold {
            topic: Topic::Growth,
            what: format!("Whether memory grows: {why}."),
            record: ranges(recording),
        });
    }
    if overview.summary.events.wrapped {
        untold.push(Untold {
            topic: Topic::Beginning,
            what: format!(
                "What happened before {}: the ring has wrapped.",
                span(overview.summary.first_ns)
            ),
            record: "GPUSHIM_TRACE_MODE=full, or a larger GPUSHIM_TRACE_SIZE, keeps more"
                .to_string(),
        });
    }
    untold
}

/// Returns the change that would show the iterations in a recording of this format.
fn ranges(recording: &dyn Recording) -> String {
    let format = recording.format();
    let next = match format.split(' ').next() {
        Some("PyTorch") => {
            "more passes of the loop in question, at least nine, each in \
             `with torch.profiler.record_function(\"step\")`, under \
             _record_memory_history(global_record_annotations=True)"
        }
        Some("gpushim") => {
            "more iterations, or an NVTX range around each (`torch.cuda.nvtx.range(\"step\")`)"
        }
        // Logs of requests have no ranges.
        _ => "more iterations; a trace of `gpushim run` has call stacks and ranges, too",
    };
    format!(
        "{next}; of this recording, `--iteration` names what they begin with: a range, a function or a size"
    )
}
