//! What stands out in a run, in plain sentences, and what to ask next.

use serde::Serialize;

use super::figures::Summary;
use super::overview::{Overview, Told};
use crate::growth::GrowthReport;
use crate::leaks::LeaksReport;
use crate::ledger::Focus;
use crate::oom::{OomReport, Why};
use crate::output::finding::{Subject, layer_name};
use crate::output::units::count;
use crate::recording::{Names, Recording};
use gpushim_trace::Layer;

/// How many lines of a list are shown.
pub(crate) const LINES: usize = 5;

/// Something that stands out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What it is: `growth`, `leaks` or `out-of-memory`, the subcommand that says more.
    pub kind: &'static str,
    /// Of what: `tensors`, `device memory`, `pinned host memory` and so on.
    pub of: &'static str,
    /// It in sentences.
    pub text: String,
    /// The command that says more.
    pub next: String,
}

impl Verdict {
    /// All that stands out in a run, what is worst first; and where memory does not grow, a sentence that says
    /// so.
    pub fn all(
        recording: &dyn Recording,
        overview: &mut Overview,
        names: &mut dyn Names,
    ) -> (Vec<Verdict>, Option<String>) {
        let trace = recording.path().display().to_string();
        // The first one is told.
        let mut shortages = std::mem::take(&mut overview.shortages);
        shortages.truncate(1);
        shortages
            .iter_mut()
            .for_each(|one| one.holders.truncate(LINES));
        let main = overview.layers.first();
        let grows = main.and_then(|told| told.growth.as_ref());
        let grows = grows.filter(|growth| growth.grows);
        let mut verdicts = Vec::new();
        if !shortages.is_empty() {
            let all = overview.summary.out_of_memory_count;
            let iterations = main.and_then(|told| told.iterations.as_ref());
            let subject = main.map(|told| Subject::of(recording, told.focus));
            let oom =
                subject.map(|subject| OomReport::new(subject, shortages, iterations, grows, names));
            verdicts.extend(oom.and_then(|oom| out_of_memory(&oom, all, &trace)));
        }
        let mut steady = None;
        for told in &overview.layers {
            let free = free_of(recording, told.focus, &overview.summary);
            // It has run out already.
            let free = free.filter(|_| overview.summary.out_of_memory_count == 0);
            let subject = || Subject::of(recording, told.focus);
            let growth = told.growth.clone();
            let by = told.iterations.as_ref().map(|all| all.by.clone());
            let growth = GrowthReport::new(subject(), by, growth, free, names);
            let what = other_memory(told.focus.layer);
            let (kind, text) = if growth.grows() {
                ("growth", growth.sentence(what.unwrap_or("Memory")))
            } else if told.leaks.leaked > 0 {
                let leaks = LeaksReport::new(subject(), &told.leaks, names).verdict;
                let text = match what {
                    Some(what) => format!("{what} {leaks}"),
                    None => leaks,
                };
                ("leaks", text)
            } else {
                if steady.is_none() && growth.growth.is_some() {
                    steady = Some(growth.verdict);
                }
                continue;
            };
            verdicts.push(Verdict {
                kind,
                of: layer_name(told.focus.layer),
                text,
                next: format!("gpushim {kind}{} {trace}", flag(told, overview)),
            });
        }
        let steady = steady.filter(|_| verdicts.iter().all(|one| one.kind == "out-of-memory"));
        (verdicts, steady)
    }
}

/// The first request that could not be met.
fn out_of_memory(oom: &OomReport, all: u64, trace: &str) -> Option<Verdict> {
    let first = oom.shortages.first()?;
    let mut text = first.verdict.clone();
    if let Some(holder) = first.held_by.first() {
        text.push_str(&format!(
            " {} of what was live was held by {}.",
            crate::output::units::percent(holder.share, 1.0),
            holder.who.in_a_sentence()
        ));
    }
    if first.why == Why::Fragmented
        && let Some(advice) = first.advice.first()
    {
        text.push_str(&format!(" {advice}"));
    }
    match all.saturating_sub(1) {
        0 => {}
        1 => text.push_str(" It happened once more."),
        more => text.push_str(&format!(" It happened {} times more.", count(more))),
    }
    Some(Verdict {
        kind: "out-of-memory",
        of: oom.subject.of,
        text,
        next: format!("gpushim oom {trace}"),
    })
}

/// What the blocks of a layer are called at the beginning of a sentence, where they are not what `memory`
/// usually means.
fn other_memory(layer: Layer) -> Option<&'static str> {
    match layer {
        Layer::Tensor | Layer::Device => None,
        Layer::Host => Some("Pinned host memory"),
        Layer::Managed => Some("Managed memory"),
        Layer::Mapping => Some("Mappings"),
    }
}

/// What to add to a subcommand for it to look at a layer.
fn flag(told: &Told, overview: &Overview) -> &'static str {
    let is_first = overview
        .layers
        .first()
        .is_some_and(|first| first.focus == told.focus);
    match told.focus.layer {
        _ if is_first => "",
        Layer::Host => " --of host",
        Layer::Managed => " --of managed",
        Layer::Device => " --of memory",
        Layer::Tensor | Layer::Mapping => " --of tensors",
    }
}

/// How many bytes the fullest device has free when most is held.
fn free_of(recording: &dyn Recording, focus: Focus, summary: &Summary) -> Option<u64> {
    if !matches!(focus.layer, Layer::Tensor | Layer::Device) {
        return None;
    }
    let free = summary.devices.iter().filter_map(|device| {
        let total = recording.gpu(device.device?)?.bytes;
        // The driver may have been asked long ago.
        let used = device.in_use.map_or(0, |used| used.end);
        let used = used.max(device.reserved.peak);
        Some(total.saturating_sub(used))
    });
    free.min()
}
