//! Repetitions in a recording: the user may choose from them if a marker is not found.

use rustc_hash::FxHashMap;

use super::beginning::{LEAST, focuses, is_allocation};
use super::marker::Marker;
use super::ranges::{RangeNames, says_iteration};
use super::without_numbers;
use crate::ledger::Focus;
use gpushim_recording::symbols::Kind as SymbolKind;
use gpushim_recording::units::count;
use gpushim_recording::{CallSite, Function, Recording};
use gpushim_trace::Kind;

/// Number of repetitions that are named.
const NAMED: usize = 5;
/// Highest number of different ones that are counted; `STACKS` is the number of stacks that are
/// looked up.
const DIFFERENT: usize = 1 << 16;
const STACKS: usize = 64;

/// Describes repetitions in place of a marker: sizes for a size, else ranges, or functions if there
/// are no ranges. Returns `None` if nothing repeats.
pub(super) fn of(recording: &dyn Recording, focus: Focus, marker: &Marker) -> Option<String> {
    match marker {
        Marker::Size(_) => sizes(recording, focus),
        Marker::Name(_) => ranges(recording).or_else(|| functions(recording, focus)),
    }
}

/// Counts, each with the order of the first occurrence.
#[derive(Default)]
struct Counts<T>(FxHashMap<T, (u64, usize)>);

impl<T: Eq + std::hash::Hash> Counts<T> {
    fn add(&mut self, one: T) {
        let order = self.0.len();
        if order < DIFFERENT || self.0.contains_key(&one) {
            self.0.entry(one).or_insert((0, order)).0 += 1;
        }
    }

    /// Returns the repetitions, the most frequent first; of equally frequent ones the earliest
    /// first.
    fn most(self) -> Vec<(T, u64)> {
        let repeat = self.0.into_iter().filter(|(_, (times, _))| *times >= LEAST);
        let mut all: Vec<(T, (u64, usize))> = repeat.collect();
        all.sort_unstable_by_key(|(_, (times, order))| (std::cmp::Reverse(*times), *order));
        all.into_iter()
            .map(|(one, (times, _))| (one, times))
            .collect()
    }
}

fn ranges(recording: &dyn Recording) -> Option<String> {
    let mut names = RangeNames::default();
    let mut seen = Counts::default();
    for record in recording.events() {
        if matches!(record.event.kind, Kind::RangePush | Kind::RangeStart) {
            seen.add(without_numbers(names.of(recording, record.event.address)));
        }
    }
    let mut seen = seen.most();
    seen.sort_by_key(|(name, _)| !says_iteration(name));
    in_words(
        "ranges",
        seen.iter()
            .map(|(name, times)| (format!("`{name}`"), *times)),
    )
}

fn functions(recording: &dyn Recording, focus: Focus) -> Option<String> {
    let focuses = focuses(focus);
    let mut stacks = Counts::default();
    for record in recording.events() {
        let event = &record.event;
        let is_of = || focuses.iter().any(|focus| focus.holds(event));
        if is_allocation(event) && event.stack != 0 && is_of() {
            stacks.add(event.stack);
        }
    }
    let mut names = recording.names();
    let mut seen: Vec<(String, u64, bool)> = Vec::new();
    for (stack, times) in stacks.most().into_iter().take(STACKS) {
        let site = CallSite::of(&mut *names, stack);
        let is_named = |function: &Function| function.kind != SymbolKind::Unknown;
        let Some(function) = site.function.filter(is_named) else {
            continue;
        };
        match seen.iter_mut().find(|(name, ..)| *name == function.name) {
            Some((_, sum, _)) => *sum += times,
            None => seen.push((function.name, times, site.is_own)),
        }
    }
    seen.sort_by_key(|(_, times, is_own)| (!is_own, std::cmp::Reverse(*times)));
    let named = seen
        .iter()
        .map(|(name, times, _)| (format!("`{name}`"), *times));
    in_words("functions", named)
}

fn sizes(recording: &dyn Recording, focus: Focus) -> Option<String> {
    let mut seen = Counts::default();
    for record in recording.events() {
        let event = &record.event;
        if is_allocation(event) && focus.holds(event) {
            seen.add(event.size);
        }
    }
    let seen = seen.most();
    in_words(
        "sizes",
        seen.iter().map(|(size, times)| (size.to_string(), *times)),
    )
}

fn in_words(what: &str, seen: impl Iterator<Item = (String, u64)>) -> Option<String> {
    let named: Vec<String> = seen
        .take(NAMED)
        .map(|(name, times)| format!("{name} {} times", count(times)))
        .collect();
    (!named.is_empty()).then(|| format!("it has the {what} {}", named.join(", ")))
}
