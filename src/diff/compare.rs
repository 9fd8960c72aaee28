//! What changed between two runs: peaks, phases, and who held memory.

use std::fmt;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::iterations::Iterations;
use crate::ledger::{Focus, Moment};
use crate::output::finding::{Finding, Subject};
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, span};
use crate::peak::Peak;
use crate::phases::Phase;
use crate::recording::{CallSite, Recording};

/// A change of less than this part of the larger peak, and of the value itself, is not found.
const LEAST: f64 = 0.01;

/// What `gpushim diff` finds.
#[derive(Clone, Debug, Serialize)]
pub struct DiffReport {
    /// The run before, and the run after.
    pub runs: [Subject; 2],
    /// The most that was live, bytes.
    pub peak: [u64; 2],
    /// Iterations of each; 0 where none were found.
    pub iterations: [usize; 2],
    /// Mean duration of an iteration, ns.
    pub iteration_ns: [u64; 2],
    /// By phase, in the order of the first run.
    pub phases: Vec<Change>,
    /// By who held memory at the peak, the greatest change first.
    pub holders: Vec<Change>,
}

/// A value in both runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Of what: a phase, or a function.
    pub name: String,
    /// The values, bytes.
    pub values: [u64; 2],
}

impl Change {
    /// What was added, bytes.
    pub fn added(&self) -> i128 {
        i128::from(self.values[1]) - i128::from(self.values[0])
    }
}

/// One run.
struct Side {
    subject: Subject,
    peak: u64,
    iterations: usize,
    iteration_ns: u64,
    phases: Vec<Phase>,
    holders: Vec<(String, u64)>,
}

impl Side {
    fn of(recording: &dyn Recording, focus: Focus) -> Side {
        let iterations = Iterations::find(recording, focus);
        let peak = Peak::at(recording, focus, Moment::Peak);
        let mut names = recording.names();
        // By name: addresses differ from run to run.
        let name = |stack| {
            let who = CallSite::of(&mut *names, stack);
            let chain = who.frames.join("\n");
            (chain, who.function_or("no stack recorded"))
        };
        let stacks: Vec<_> = peak.holders.iter().map(|held| held.stack).collect();
        let named: Vec<_> = stacks.into_iter().map(name).collect();
        let mut by_chain = FxHashMap::<&str, (&str, u64)>::default();
        for ((chain, function), held) in named.iter().zip(&peak.holders) {
            let sum = by_chain.entry(chain).or_insert((function, 0));
            sum.1 = sum.1.saturating_add(held.bytes);
        }
        // Of several ways to the same function one line.
        let mut holders = FxHashMap::<&str, u64>::default();
        for (function, held) in by_chain.into_values() {
            let sum = holders.entry(function).or_default();
            *sum = sum.saturating_add(held);
        }
        let (first, last) = iterations.as_ref().map_or((0, 0), |all| {
            let ns = |start: Option<&crate::iterations::Start>| start.map_or(0, |start| start.ns);
            (ns(all.starts.first()), ns(all.starts.last()))
        });
        let count = iterations.as_ref().map_or(0, Iterations::count);
        Side {
            subject: Subject::of(recording, focus),
            peak: peak.bytes,
            iterations: count,
            iteration_ns: last.saturating_sub(first) / (count as u64).max(1),
            phases: Phase::all(recording, focus, iterations.as_ref()),
            holders: holders
                .into_iter()
                .map(|(name, held)| (name.to_string(), held))
                .collect(),
        }
    }
}

impl DiffReport {
    /// Compares a run with the one before it.
    pub fn of(before: (&dyn Recording, Focus), after: (&dyn Recording, Focus)) -> DiffReport {
        let sides = [Side::of(before.0, before.1), Side::of(after.0, after.1)];
        let phases = |side: &Side| {
            let peak = |phase: &Phase| (phase.name.clone(), phase.peak_above_entry);
            side.phases.iter().map(peak).collect::<Vec<_>>()
        };
        let [a, b] = &sides;
        let mut holders = changes(&a.holders, &b.holders);
        holders
            .sort_by_key(|change| (std::cmp::Reverse(change.added().abs()), change.name.clone()));
        DiffReport {
            peak: [a.peak, b.peak],
            iterations: [a.iterations, b.iterations],
            iteration_ns: [a.iteration_ns, b.iteration_ns],
            phases: changes(&phases(a), &phases(b)),
            holders,
            runs: sides.map(|side| side.subject),
        }
    }
}

/// Values by name, in the order in which names come first.
fn changes(before: &[(String, u64)], after: &[(String, u64)]) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    let mut places = FxHashMap::<&str, usize>::default();
    for (side, values) in [before, after].into_iter().enumerate() {
        for (name, value) in values {
            let place = *places.entry(name).or_insert_with(|| {
                all.push(Change {
                    name: name.clone(),
                    values: [0, 0],
                });
                all.len() - 1
            });
            if let Some(value_of) = all
                .get_mut(place)
                .and_then(|change| change.values.get_mut(side))
            {
                *value_of = *value;
            }
        }
    }
    all
}

impl Finding for DiffReport {
    fn is_found(&self) -> bool {
        let peak = self.peak.iter().max().copied().unwrap_or(0) as f64;
        let is_change = |[a, b]: [u64; 2]| a.abs_diff(b) as f64 > LEAST * peak;
        is_change(self.peak)
            || self.phases.iter().any(|change| is_change(change.values))
            || self.holders.iter().any(|change| is_change(change.values))
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        for (name, run) in ["before", "after "].iter().zip(&self.runs) {
            write!(f, "{name}  ")?;
            run.heading(f)?;
        }
        let mut table = figures("");
        let change = |name: &str, values| Change {
            name: name.to_string(),
            values,
        };
        row(&mut table, &change("peak", self.peak));
        let [before, after] = self.iteration_ns;
        if before > 0 && after > 0 {
            let times = format!("{:+.1} %", (after as f64 / before as f64 - 1.0) * 100.0);
            table.row([
                "time of an iteration".to_string(),
                span(before),
                span(after),
                times,
            ]);
        }
        for phase in self.phases.iter().take(top) {
            row(
                &mut table,
                &change(&format!("{}, peak above entry", phase.name), phase.values),
            );
        }
        write!(f, "\n{table}")?;
        let mut table = figures("held at the peak by");
        for holder in self
            .holders
            .iter()
            .filter(|holder| holder.added() != 0)
            .take(top)
        {
            row(&mut table, holder);
        }
        if !table.is_empty() {
            write!(f, "\n{table}")?;
        }
        Ok(())
    }
}

fn figures(what: &str) -> Table {
    Table::new([
        (what, Align::Left),
        ("before", Align::Right),
        ("after", Align::Right),
        ("change", Align::Right),
    ])
}

fn row(table: &mut Table, change: &Change) {
    let added = change.added();
    let sign = if added < 0 { "-" } else { "+" };
    let size = bytes(u64::try_from(added.abs()).unwrap_or(u64::MAX));
    table.row([
        change.name.clone(),
        bytes(change.values[0]),
        bytes(change.values[1]),
        if added == 0 {
            "same".to_string()
        } else {
            format!("{sign}{size}")
        },
    ]);
}
