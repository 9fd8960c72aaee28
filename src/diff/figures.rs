//! Figures of one of the compared runs.

use std::collections::BTreeMap;

use crate::compare::{Figure, MemoryFigures};
use crate::ledger::{Focus, Moment};
use crate::loops::{Given, Iterations};
use crate::output::answer::layer_name;
use crate::output::holder::no_stack;
use crate::output::owned::row as owner_in_words;
use crate::peak::Peak;
use crate::phases::Phase;
use crate::recording::{CallSite, Recording};

/// Returns the figures of the memory that is compared. `given`, if the user set it, is the start of
/// the iterations.
pub fn figures(recording: &dyn Recording, focus: Focus, given: Option<&Given>) -> MemoryFigures {
    let iterations = Iterations::find(recording, focus, given);
    let iterations = iterations.as_ref();
    let peak = Peak::at(recording, focus, Moment::Peak);
    let mut names = recording.names();
    // Stacks are matched by name, since addresses differ from run to run. Those that end in the same
    // function share one figure.
    let mut holders = BTreeMap::<String, Figure>::new();
    for held in &peak.holders {
        let who = CallSite::of(&mut *names, held.stack);
        let name = who.function_or(no_stack(false));
        let sum = (holders.entry(name)).or_insert_with_key(|name| Figure {
            function: who.function,
            ..Figure::of(name, 0)
        });
        sum.bytes = sum.bytes.saturating_add(held.bytes);
    }
    let owners = peak.owners.iter();
    let phases = Phase::all(recording, focus, iterations);
    let starts = iterations.map_or(&[][..], |all| &all.starts);
    let first = starts.first().map_or(0, |start| start.ns);
    let last = starts.last().map_or(0, |start| start.ns);
    let count = iterations.map_or(0, Iterations::count);
    MemoryFigures {
        gpu: focus.device,
        of: layer_name(focus.layer).to_string(),
        peak: peak.bytes,
        reserved: 0,
        holders: holders.into_values().collect(),
        owners: owners
            .map(|one| Figure::of(owner_in_words(&one.owner), one.bytes))
            .collect(),
        phases: phases
            .into_iter()
            .map(|phase| Figure::of(phase.name, phase.peak_above_entry))
            .collect(),
        iterations: count,
        iteration_ns: last.saturating_sub(first) / (count as u64).max(1),
    }
}
