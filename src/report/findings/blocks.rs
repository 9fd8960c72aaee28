//! Findings of growth and of a lasting fall.

use super::{Finding, Kind};
use crate::falls::{LastingFall, may_last};
use crate::growth::GrowthReport;
use crate::loops::Told;
use crate::output::answer::layer_name;
use crate::recording::{CallSite, Names, Recording};
use crate::report::overview::{LayerFindings, Overview};
use gpushim_trace::Layer;

/// Least growth of a layer, as a share of the most that was live on any layer.
const SHARE: f64 = 0.0008;

/// Finds the growth of each layer. If memory certainly does not grow on the main layer, it also
/// returns a sentence.
pub fn find(
    recording: &dyn Recording,
    overview: &Overview,
    names: &mut dyn Names,
) -> (Vec<Finding>, Option<String>) {
    let mut found = Vec::new();
    let mut steady = None;
    // After a request ran out of memory, the time until memory is full is no longer of interest.
    let is_open = overview.summary.out_of_memory_count == 0;
    let layers = overview.layers.iter();
    let highest = layers.flat_map(|layer| layer.followed.highest.stretches());
    let highest = highest.map(|one| one.highest).max().unwrap_or(0);
    for layer in &overview.layers {
        let report = GrowthReport::new(recording, layer.focus, &layer.followed, is_open, names);
        if !report.grows() {
            let is_main = overview
                .layers
                .first()
                .is_some_and(|first| first.focus == layer.focus);
            let is_sure = report.judgement.told == Told::Sure;
            steady = steady.or((is_main && is_sure).then_some(report.verdict));
            continue;
        }
        let finding = of_growth(recording, overview, layer, report);
        found.extend(finding.filter(|one| one.bytes as f64 >= SHARE * highest as f64));
    }
    (found, steady)
}

fn of_growth(
    recording: &dyn Recording,
    overview: &Overview,
    layer: &LayerFindings,
    report: GrowthReport,
) -> Option<Finding> {
    let (iterations, _) = layer.followed.growth.as_ref()?;
    let growth = report.growth.as_ref()?;
    let bytes = growth.keepers.iter().map(|keeper| keeper.bytes);
    let of = layer_name(layer.focus.layer);
    let loops = report.recognised.as_ref().map_or("", |one| &one.in_words);
    let mut why = format!(
        "{} passes of {loops}; {}",
        growth.iterations, growth.judgement.why
    );
    if let Some(until) = report.until() {
        why = format!("{why}; {until}");
    }
    let text = match name_at_start(layer.focus.layer) {
        Some(what) => format!("{what}: {}", report.verdict),
        None => report.verdict.clone(),
    };
    let flag = flag(layer, overview);
    let set = iterations
        .option()
        .map_or(String::new(), |set| format!(" {set}"));
    Some(Finding {
        kind: Kind::Growth,
        of,
        text,
        bytes: bytes.fold(0_u64, u64::saturating_add),
        per_iteration: Some(growth.per_iteration),
        sure: growth.judgement.told == Told::Sure,
        why,
        next: format!("gpushim growth{flag}{set} {}", recording.path().display()),
        kept_by: report.kept_by(),
        fix: report.fix,
        site: report
            .keepers
            .into_iter()
            .next()
            .map(|keeper| keeper.holder.who),
    })
}

/// Finds a lasting fall of the first layer.
pub fn lasting_fall(recording: &dyn Recording, overview: &Overview) -> Option<LastingFall> {
    let layer = overview.layers.first()?;
    let stretches = layer.followed.highest.stretches();
    let may_last = overview.summary.contexts_gone > 0 || may_last(stretches);
    if overview.is_long() && !may_last {
        return None;
    }
    LastingFall::of(recording, layer.focus, &layer.followed)
}

/// Makes the finding of a lasting fall of the first layer.
pub fn of_fall(
    recording: &dyn Recording,
    overview: &Overview,
    fall: &LastingFall,
    names: &mut dyn Names,
) -> Option<Finding> {
    let layer = overview.layers.first()?;
    let before = fall.before_ns as f64 / 1e9;
    let file = recording.path().display();
    Some(Finding {
        kind: Kind::Drops,
        of: layer_name(layer.focus.layer),
        text: fall.sentence(names),
        bytes: fall.fall.bytes(),
        per_iteration: None,
        kept_by: None,
        site: fall.holder.map(|held| CallSite::of(names, held.stack)),
        sure: true,
        why: "memory stays lower from then on".to_string(),
        fix: None,
        next: format!("gpushim peak --at {before:.9} {file}"),
    })
}

/// Name of a layer's blocks at the beginning of a sentence; `None` for the usual layers.
fn name_at_start(layer: Layer) -> Option<&'static str> {
    match layer {
        Layer::Tensor | Layer::Device => None,
        Layer::Host => Some("Pinned host memory"),
        Layer::Managed => Some("Managed memory"),
        Layer::Mapping => Some("Mappings"),
    }
}

/// Option that selects a layer in a subcommand; empty for the first layer.
fn flag(layer: &LayerFindings, overview: &Overview) -> &'static str {
    let first = overview.layers.first();
    match layer.focus.layer {
        _ if first.is_some_and(|first| first.focus == layer.focus) => "",
        Layer::Host => " --of host",
        Layer::Managed => " --of managed",
        Layer::Device => " --of memory",
        Layer::Tensor | Layer::Mapping => " --of tensors",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Focus;
    use crate::ledger::sample::Training;
    use crate::report::Report;

    #[test]
    fn report_and_growth_tell_the_same_free_memory() {
        let how = Training {
            leak: 1_101_004,
            has_gpu: true,
            ..Training::default()
        };
        let (_dir, trace) = how.record();
        let focus = Focus::of(&trace, None);
        let growth = GrowthReport::of(&trace, focus, None, &mut *trace.names());
        assert_eq!(growth.until_full.unwrap().bytes, (5 << 30) - (1 << 20));
        let report = Report::of(&trace, None);
        let told = report.findings.iter().find(|one| one.kind == Kind::Growth);
        assert_eq!(told.unwrap().text, growth.verdict);
    }
}
