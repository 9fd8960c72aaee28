//! The figures of the exports of a recording, for tests.

use std::collections::BTreeMap;

use super::complete_events::CompleteEvents;
use super::counters::{Counters, NAMES};
use super::profile::profile;
use crate::recording::Recording;
use gpushim_trace::Layer;

/// All values of each counter, by device and name, in the order of time.
pub(crate) fn counters(recording: &dyn Recording) -> BTreeMap<(u8, &'static str), Vec<u64>> {
    let story = CompleteEvents::of(recording);
    let mut counters = Counters::before(&story);
    let mut told: BTreeMap<(u8, &'static str), Vec<u64>> = BTreeMap::new();
    for record in story.events() {
        counters.feed(&record, |device, place, value| {
            told.entry((device, NAMES[place])).or_default().push(value);
        });
    }
    told
}

/// The layer that profiles describe, and the bytes of all stacks live at the end and at the peak.
pub(crate) fn held(recording: &dyn Recording) -> (Layer, u64, u64) {
    let story = CompleteEvents::of(recording);
    let all = profile(&story);
    let sum = |of: fn(&super::profile::Sums) -> u64| all.iter().map(|(_, sums)| of(sums)).sum();
    (story.layer, sum(|sums| sums.live), sum(|sums| sums.peak))
}
