//! Differences of two runs: peaks, phases, and the stacks that held memory.

use std::cmp::Reverse;

use serde::Serialize;

use crate::compare::{Change, Figure, MemoryFigures, changes};
use crate::output::answer::Subject;
use crate::phases::ITERATION;

/// Most names in a sentence about figures that one run lacks.
const NAMES: usize = 5;

/// Answer of `gpushim diff`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffReport {
    /// The run before, and the run after.
    pub runs: [Subject; 2],
    /// The peak of live memory, bytes; `None` of a run that has no such memory.
    pub peak: [Option<u64>; 2],
    /// Iterations of each; 0 where none were found.
    pub iterations: [usize; 2],
    /// Mean duration of an iteration, ns.
    pub iteration_ns: [u64; 2],
    /// By phase, in the order of the first run.
    pub phases: Vec<Change>,
    /// By the stack that held memory at the peak, the greatest change first.
    pub holders: Vec<Change>,
    /// By who kept memory at the peak, where both runs recorded that, the greatest change first.
    pub owners: Vec<Change>,
    /// Figures that cannot be compared, with the reason.
    pub not_compared: Vec<String>,
    /// Allowed rise of the peak, of a phase and of a stack, as a part of the peak before.
    pub max_growth: f64,
    /// Names of the figures that rose by more.
    pub regressions: Vec<String>,
}

impl DiffReport {
    /// Compares a run with the one before it. A rise by more than `max_growth` of the peak before
    /// is a regression.
    pub fn of(runs: [Subject; 2], figures: &[MemoryFigures; 2], max_growth: f64) -> DiffReport {
        let [before, after] = figures;
        let has_owners = !before.owners.is_empty() && !after.owners.is_empty();
        let owners = has_owners.then(|| greatest_first(&before.owners, &after.owners));
        let mut diff = DiffReport {
            not_compared: not_compared(&runs, figures),
            peak: figures.each_ref().map(peak),
            iterations: figures.each_ref().map(|run| run.iterations),
            iteration_ns: figures.each_ref().map(|run| run.iteration_ns),
            phases: changes(&before.phases, &after.phases),
            holders: greatest_first(&before.holders, &after.holders),
            owners: owners.unwrap_or_default(),
            max_growth,
            regressions: Vec::new(),
            runs,
        };
        diff.regressions = diff.regressions();
        diff
    }

    /// Names of the figures that rose by too much; none if the recordings are of different memory.
    fn regressions(&self) -> Vec<String> {
        let [Some(before), _] = self.peak else {
            return Vec::new();
        };
        if self.runs[0].of != self.runs[1].of {
            return Vec::new();
        }
        let peak = Change::of("peak", self.peak);
        // The peak of an iteration is the run's peak. Above its entry it also rises if fewer bytes
        // stay between iterations.
        let phases = self.phases.iter().filter(|phase| phase.name != ITERATION);
        // Memory without a stack may have one in the other run.
        let stacks = self.holders.iter().filter(|held| held.function.is_some());
        let all = std::iter::once(&peak).chain(phases).chain(stacks);
        all.filter(|change| change.rose(before, self.max_growth))
            .map(|change| change.name.clone())
            .collect()
    }
}

/// Returns the peak; `None` of a run that has no such memory.
fn peak(run: &MemoryFigures) -> Option<u64> {
    Some(run.peak).filter(|bytes| *bytes > 0)
}

/// Pairs the figures, those with the greatest difference first.
fn greatest_first(before: &[Figure], after: &[Figure]) -> Vec<Change> {
    let mut all = changes(before, after);
    all.sort_by_cached_key(|change| (Reverse(change.weight()), change.name.clone()));
    all
}

/// Sentences about figures that only one of the runs has.
fn not_compared(runs: &[Subject; 2], figures: &[MemoryFigures; 2]) -> Vec<String> {
    let mut all = Vec::new();
    let [a, b] = runs;
    if a.of != b.of {
        all.push(format!(
            "The recordings are of different memory, {} and {}: their figures say nothing of each other. Choose one \
             with --of.",
            a.of, b.of
        ));
    }
    let mut only = |has: fn(&MemoryFigures) -> bool, what: &str| {
        let without = match figures.each_ref().map(has) {
            [true, false] => "after",
            [false, true] => "before",
            _ => return,
        };
        all.push(format!(
            "The run {without} has no {what}: these are not compared."
        ));
    };
    let memory = if figures[0].peak > 0 { b.of } else { a.of };
    only(|run| run.peak > 0, &format!("{memory} at all"));
    let has_stacks = |run: &MemoryFigures| run.holders.iter().any(|one| one.function.is_some());
    only(has_stacks, "stacks");
    only(|run| run.iterations > 0, "iterations");
    only(|run| !run.phases.is_empty(), "phases");
    if figures.iter().all(|run| !run.phases.is_empty()) {
        let phases = changes(&figures[0].phases, &figures[1].phases);
        for (side, when) in ["before", "after"].into_iter().enumerate() {
            let lacks = |change: &&Change| change.values.get(1 - side) == Some(&None);
            let announced = phases.iter().filter(|phase| phase.name != ITERATION);
            let names: Vec<&str> = announced.filter(lacks).map(|one| &*one.name).collect();
            if !names.is_empty() {
                all.push(format!(
                    "Only the run {when} has the phases {}: these are not compared.",
                    listed(&names, NAMES)
                ));
            }
        }
    }
    for (when, run) in [("before", a), ("after", b)] {
        if run.wrapped {
            all.push(format!(
                "The beginning of the run {when} is no longer in its recording: its peak may have been higher."
            ));
        }
    }
    all
}

/// Lists the first `most` names, and the number of the others.
pub fn listed<T: AsRef<str>>(names: &[T], most: usize) -> String {
    let mut first: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    let more = names.len().saturating_sub(most);
    let and_more = format!("{more} more");
    if more > 0 {
        first.push(&and_more);
    }
    first.join(", ")
}

#[cfg(test)]
mod tests;
