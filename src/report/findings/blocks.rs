//! What blocks do: growth, leaks and lasting drops, as findings.

use super::{Finding, Kind};
use crate::drops::{Drops, DropsReport, may_last};
use crate::growth::{GrowthReport, UntilFull};
use crate::iterations::Iterations;
use crate::leaks::LeaksReport;
use crate::output::answer::{Subject, layer_name};
use crate::recording::{Names, Recording};
use crate::report::overview::{LayerFindings, Overview};
use gpushim_trace::Layer;

/// Growth, or else leaks, of each layer; and where memory does not grow, a sentence
/// that says so.
pub fn find(
    recording: &dyn Recording,
    overview: &Overview,
    names: &mut dyn Names,
) -> (Vec<Finding>, Option<String>) {
    let mut found = Vec::new();
    let mut steady = None;
    for layer in &overview.layers {
        match of_layer(recording, overview, layer, names) {
            Of::Finding(finding) => found.push(*finding),
            Of::Steady(sentence) if steady.is_none() => steady = Some(sentence),
            _ => {}
        }
    }
    (found, steady)
}

/// What there is to say of a layer.
enum Of {
    Finding(Box<Finding>),
    Steady(String),
    Nothing,
}

fn of_layer(
    recording: &dyn Recording,
    overview: &Overview,
    layer: &LayerFindings,
    names: &mut dyn Names,
) -> Of {
    let subject = || Subject::of(recording, layer.focus);
    let certainty = layer.iterations.as_ref().map(|all| all.certainty.clone());
    let certainty = certainty.unwrap_or_default();
    // Where memory has run out already, how long it lasts is no question.
    let is_open = overview.summary.out_of_memory_count == 0;
    let growing = layer.growth.as_ref().filter(|_| is_open);
    let until_full = growing.and_then(|growth| UntilFull::of(recording, layer.focus, growth));
    let iterations = layer.iterations.as_ref();
    let growth = GrowthReport::new(
        subject(),
        iterations,
        layer.growth.clone(),
        until_full,
        names,
    );
    let per_iteration = growth.growth.as_ref().filter(|growth| growth.grows);
    let per_iteration = per_iteration.map(|growth| growth.per_iteration);
    let what = name_at_start(layer.focus.layer);
    let (kind, text, bytes, holder, fix) = if growth.grows() {
        let kept = growth.keepers.iter().map(|keeper| keeper.holder.bytes);
        let kept = kept.fold(0_u64, u64::saturating_add);
        let text = growth.sentence(what.unwrap_or("Memory"));
        let first = growth.keepers.into_iter().next();
        let (holder, fix) = first.map(|keeper| (keeper.holder, keeper.fix)).unzip();
        (Kind::Growth, text, kept, holder, fix.flatten())
    } else if layer.leaks.leaked > 0 {
        let leaks = LeaksReport::new(subject(), iterations, &layer.leaks, names);
        let text = match what {
            Some(what) => format!("{what}: {}", leaks.verdict),
            None => leaks.verdict,
        };
        let mut leaking = leaks.left.into_iter().filter(|left| left.leaks);
        let (holder, fix) = leaking.next().map(|left| (left.holder, left.fix)).unzip();
        (Kind::Leaks, text, leaks.leaked, holder, fix.flatten())
    } else {
        let is_known = growth
            .growth
            .as_ref()
            .is_some_and(|growth| growth.unsure.is_none())
            && certainty.sure;
        return if is_known {
            Of::Steady(growth.verdict)
        } else {
            Of::Nothing
        };
    };
    let flag = flag(layer, overview);
    let set = iterations.and_then(Iterations::option);
    let set = set.map_or(String::new(), |set| format!(" {set}"));
    Of::Finding(Box::new(Finding {
        kind,
        of: layer_name(layer.focus.layer),
        text,
        bytes,
        per_iteration,
        site: holder.map(|holder| holder.who),
        sure: certainty.sure,
        why: certainty.why,
        fix,
        next: format!(
            "gpushim {}{flag}{set} {}",
            kind.command(),
            recording.path().display()
        ),
    }))
}

/// The falls of the first layer that last.
pub fn lasting_drops(recording: &dyn Recording, overview: &Overview) -> Option<Drops> {
    let layer = overview.layers.first()?;
    let stretches = layer.highest.stretches();
    let may_last = overview.summary.contexts_gone > 0 || may_last(stretches);
    if overview.is_long() && !may_last {
        return None;
    }
    let peak = stretches.iter().map(|one| one.highest).max()?;
    let iterations = layer.iterations.as_ref();
    Some(Drops::lasting_of(recording, layer.focus, iterations, peak))
}

/// The largest of them.
pub fn lasting(
    recording: &dyn Recording,
    overview: &Overview,
    found: Drops,
    names: &mut dyn Names,
) -> Option<Finding> {
    let layer = overview.layers.first()?;
    let iterations = layer.iterations.as_ref();
    let drops = DropsReport::new(recording, layer.focus, iterations, found, names);
    let lasting = drops.lasting().next()?;
    Some(Finding {
        kind: Kind::Drops,
        of: layer_name(layer.focus.layer),
        text: lasting.sentence(),
        bytes: lasting.bytes,
        per_iteration: None,
        site: lasting.of.first().map(|holder| holder.who.clone()),
        sure: true,
        why: "memory stays lower from then on".to_string(),
        fix: None,
        next: format!("gpushim drops {}", recording.path().display()),
    })
}

/// What the blocks of a layer are called at the beginning of a sentence, where they are not what `memory`
/// usually means.
fn name_at_start(layer: Layer) -> Option<&'static str> {
    match layer {
        Layer::Tensor | Layer::Device => None,
        Layer::Host => Some("Pinned host memory"),
        Layer::Managed => Some("Managed memory"),
        Layer::Mapping => Some("Mappings"),
    }
}

/// What to add to a subcommand for it to look at a layer.
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
        assert!(growth.verdict.contains("At this rate the remaining "));
        let host = Focus {
            layer: Layer::Host,
            ..focus
        };
        let host = UntilFull::of(&trace, host, growth.growth.as_ref().unwrap());
        assert_eq!(host, None, "pinned memory does not fill a device");
    }
}
