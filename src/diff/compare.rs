//! Compares two runs: peaks, phases, and the stacks that held memory.

use std::fmt;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::ledger::{Focus, Moment};
use crate::loops::{Given, Iterations};
use crate::output::answer::{Answer, Subject};
use crate::output::escape::shown;
use crate::output::owned::row as owner_in_words;
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, percent, span};
use crate::peak::Peak;
use crate::phases::{ITERATION, Phase};
use crate::recording::{CallSite, Function, Recording};

/// Text for a figure that one run lacks.
const ABSENT: &str = "—";

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
    /// By how much the peak, and that of a phase, may rise, as a part of the peak before.
    pub max_growth: f64,
    /// What rose by more.
    pub regressions: Vec<String>,
}

/// A value in both runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Change {
    /// The name of a phase, or a function with its place.
    pub name: String,
    /// The function, of a call site that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<Function>,
    /// The values, bytes; `None` in a run that has no such phase or function.
    pub values: [Option<u64>; 2],
}

impl Change {
    /// Increase from the first run to the second, bytes; `None` if one run has no value.
    pub fn added(&self) -> Option<i128> {
        added(self.values)
    }
}

fn added([before, after]: [Option<u64>; 2]) -> Option<i128> {
    Some(i128::from(after?) - i128::from(before?))
}

/// One of the compared runs.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    pub recording: &'a dyn Recording,
    /// Memory that is compared.
    pub focus: Focus,
    /// Start of the iterations, if the user set it.
    pub given: Option<&'a Given>,
}

/// Figures of one of the runs.
struct Side {
    subject: Subject,
    peak: Option<u64>,
    has_stacks: bool,
    iterations: usize,
    iteration_ns: u64,
    phases: Vec<Phase>,
    holders: Vec<(String, u64)>,
    /// Owners of the live memory, in words.
    owners: Vec<(String, u64)>,
    /// Functions of the holders, by their names.
    functions: FxHashMap<String, Function>,
}

impl Side {
    fn of(run: &Run) -> Side {
        let Run {
            recording,
            focus,
            given,
        } = *run;
        let iterations = Iterations::find(recording, focus, given);
        let peak = Peak::at(recording, focus, Moment::Peak);
        let mut names = recording.names();
        let mut functions = FxHashMap::default();
        // Stacks are matched by name, since addresses differ from run to run.
        let name = |stack| {
            let who = CallSite::of(&mut *names, stack);
            let chain: Vec<String> = who.frames.iter().map(Function::label).collect();
            let name = who.function_or("no stack recorded");
            if let Some(function) = who.function {
                functions.insert(name.clone(), function);
            }
            (chain.join("\n"), name)
        };
        let stacks: Vec<_> = peak.holders.iter().map(|held| held.stack).collect();
        let named: Vec<_> = stacks.into_iter().map(name).collect();
        let mut by_chain = FxHashMap::<&str, (&str, u64)>::default();
        for ((chain, function), held) in named.iter().zip(&peak.holders) {
            let sum = by_chain.entry(chain).or_insert((function, 0));
            sum.1 = sum.1.saturating_add(held.bytes);
        }
        // Stacks that end in the same function share one line.
        let mut holders = FxHashMap::<&str, u64>::default();
        for (function, held) in by_chain.into_values() {
            let sum = holders.entry(function).or_default();
            *sum = sum.saturating_add(held);
        }
        let (first, last) = iterations.as_ref().map_or((0, 0), |all| {
            let ns = |start: Option<&crate::loops::Start>| start.map_or(0, |start| start.ns);
            (ns(all.starts.first()), ns(all.starts.last()))
        });
        let count = iterations.as_ref().map_or(0, Iterations::count);
        Side {
            subject: Subject::of(recording, focus),
            peak: Some(peak.bytes).filter(|bytes| *bytes > 0),
            has_stacks: peak.holders.iter().any(|held| held.stack != 0),
            iterations: count,
            iteration_ns: last.saturating_sub(first) / (count as u64).max(1),
            phases: Phase::all(recording, focus, iterations.as_ref()),
            holders: holders
                .into_iter()
                .map(|(name, held)| (name.to_string(), held))
                .collect(),
            owners: peak
                .owners
                .iter()
                .map(|one| (owner_in_words(&one.owner), one.bytes))
                .collect(),
            functions,
        }
    }
}

impl DiffReport {
    /// Compares a run with the one before it. A rise by more than `max_growth` of the peak before
    /// is a regression.
    pub fn of(before: &Run, after: &Run, max_growth: f64) -> DiffReport {
        let sides = [Side::of(before), Side::of(after)];
        let phases = |side: &Side| {
            let peak = |phase: &Phase| (phase.name.clone(), phase.peak_above_entry);
            side.phases.iter().map(peak).collect::<Vec<_>>()
        };
        let [a, b] = &sides;
        let mut holders = changes(&a.holders, &b.holders);
        for change in &mut holders {
            let of = |side: &Side| side.functions.get(&change.name).cloned();
            change.function = of(b).or_else(|| of(a));
        }
        let weight = |change: &Change| {
            let [before, after] = change.values.map(Option::unwrap_or_default);
            before.abs_diff(after)
        };
        let mut owners = match a.owners.is_empty() || b.owners.is_empty() {
            true => Vec::new(),
            false => changes(&a.owners, &b.owners),
        };
        owners.sort_by_key(|change| (std::cmp::Reverse(weight(change)), change.name.clone()));
        holders.sort_by_key(|change| (std::cmp::Reverse(weight(change)), change.name.clone()));
        let not_compared = not_compared(a, b);
        let mut diff = DiffReport {
            peak: [a.peak, b.peak],
            iterations: [a.iterations, b.iterations],
            iteration_ns: [a.iteration_ns, b.iteration_ns],
            phases: changes(&phases(a), &phases(b)),
            holders,
            owners,
            not_compared,
            max_growth,
            regressions: Vec::new(),
            runs: sides.map(|side| side.subject),
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
        let allowed = before as f64 * self.max_growth;
        let rose = |values| added(values).is_some_and(|added| added as f64 > allowed);
        let peak = rose(self.peak).then(|| "peak".to_string());
        // The peak of an iteration is the run's peak. Above its entry it also rises if fewer bytes
        // stay between iterations.
        let phases = self
            .phases
            .iter()
            .filter(|phase| phase.name != ITERATION && rose(phase.values));
        peak.into_iter()
            .chain(phases.map(|phase| phase.name.clone()))
            .collect()
    }
}

/// Pairs the values by name, in the order of the first occurrence of each name.
fn changes(before: &[(String, u64)], after: &[(String, u64)]) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    let mut places = FxHashMap::<&str, usize>::default();
    for (side, values) in [before, after].into_iter().enumerate() {
        for (name, value) in values {
            let place = *places.entry(name).or_insert_with(|| {
                all.push(Change {
                    name: name.clone(),
                    function: None,
                    values: [None; 2],
                });
                all.len() - 1
            });
            if let Some(value_of) = all
                .get_mut(place)
                .and_then(|change| change.values.get_mut(side))
            {
                *value_of = Some(*value);
            }
        }
    }
    all
}

impl Answer for DiffReport {
    const COMMAND: &'static str = "diff";

    fn is_found(&self) -> bool {
        !self.regressions.is_empty()
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        for (name, run) in ["before", "after "].iter().zip(&self.runs) {
            write!(f, "{name}  ")?;
            run.heading(f)?;
        }
        let mut table = figures("");
        let change = |name: &str, values| Change {
            name: name.to_string(),
            function: None,
            values,
        };
        row(&mut table, &change("peak", self.peak));
        let [before, after] = self.iteration_ns;
        if before > 0 && after > 0 {
            let times = format!("{:+.1} %", (after as f64 / before as f64 - 1.0) * 100.0);
            table.row([
                span(before),
                span(after),
                times,
                "time of an iteration".to_string(),
            ]);
        }
        for phase in self.phases.iter().take(top) {
            row(
                &mut table,
                &change(&format!("{}, peak above entry", phase.name), phase.values),
            );
        }
        write!(f, "\n{table}")?;
        for (title, rows) in [
            ("held at the peak by", &self.holders),
            ("kept at the peak by", &self.owners),
        ] {
            let mut table = figures(title);
            for change in rows.iter().filter(|one| one.added() != Some(0)).take(top) {
                row(&mut table, change);
            }
            if !table.is_empty() {
                write!(f, "\n{table}")?;
            }
        }
        for sentence in &self.not_compared {
            write!(f, "\n{}", shown(sentence))?;
        }
        if !self.not_compared.is_empty() {
            writeln!(f)?;
        }
        let allowed = percent(self.max_growth, 1.0);
        if !self.regressions.is_empty() {
            let names = self.regressions.join(", ");
            writeln!(
                f,
                "\nRegression: more than {allowed} of the peak before was added to: {}",
                shown(&names)
            )?;
        }
        Ok(())
    }
}

/// Makes a table with the figures first, so that long names cannot push them out of view.
fn figures(what: &str) -> Table {
    Table::new([
        ("before", Align::Right),
        ("after", Align::Right),
        ("change", Align::Right),
        (what, Align::Left),
    ])
}

fn row(table: &mut Table, change: &Change) {
    let value = |value: Option<u64>| value.map_or(ABSENT.to_string(), bytes);
    let added = match change.added() {
        None => ABSENT.to_string(),
        Some(0) => "same".to_string(),
        Some(added) => {
            let sign = if added < 0 { "-" } else { "+" };
            let size = u64::try_from(added.abs()).unwrap_or(u64::MAX);
            format!("{sign}{}", bytes(size))
        }
    };
    let [before, after] = change.values;
    table.row([value(before), value(after), added, change.name.clone()]);
}

/// Sentences about figures that only one of the runs has.
fn not_compared(before: &Side, after: &Side) -> Vec<String> {
    let mut all = Vec::new();
    let (a, b) = (&before.subject, &after.subject);
    if a.of != b.of {
        all.push(format!(
            "The recordings are of different memory, {} and {}: their figures say nothing of each other. Choose one \
             with --of.",
            a.of, b.of
        ));
    }
    let mut only = |is: [bool; 2], what: &str| {
        let without = match is {
            [true, false] => "after",
            [false, true] => "before",
            _ => return,
        };
        all.push(format!(
            "The run {without} has no {what}: these are not compared."
        ));
    };
    let peaks = [before, after].map(|side| side.peak.is_some());
    only(
        peaks,
        &format!("{} at all", if peaks[0] { b.of } else { a.of }),
    );
    only([before, after].map(|side| side.has_stacks), "stacks");
    only(
        [before, after].map(|side| side.iterations > 0),
        "iterations",
    );
    only(
        [before, after].map(|side| !side.phases.is_empty()),
        "phases",
    );
    for (when, side) in [("before", a), ("after", b)] {
        if side.wrapped {
            all.push(format!(
                "The beginning of the run {when} is no longer in its recording: its peak may have been higher."
            ));
        }
    }
    all
}

#[cfg(test)]
mod tests;
