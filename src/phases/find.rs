//! Memory by phase of a program: its ranges, by NVTX or as PyTorch announced them, and its
//! iterations.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::ledger::{Block, Focus, Visitor, walk};
use crate::loops::{Iterations, without_numbers};
use crate::recording::Recording;
use gpushim_trace::{Kind, Record};

/// The name of the phase of an iteration without a range of its own.
pub const ITERATION: &str = "iteration";
/// Highest number of names of phases.
const NAMES: usize = 1 << 12;
/// Highest number of ranges that are open at once and may end in any order; more are not followed.
const STARTED: usize = 64;
/// Highest number of stretches of time of a phase: more than can be seen.
const STRETCHES: usize = 1 << 13;

/// Sum of the events between the beginnings and ends of the ranges of one name.
///
/// Events of all threads count, since PyTorch's backward allocates on another thread. An event
/// counts in each of several nested ranges.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Phase {
    /// Its name without numbers; `iteration` where iterations have no range.
    pub name: String,
    /// Ranges around it.
    pub depth: usize,
    /// Number of times it took place.
    pub count: u64,
    /// In all of them together, ns.
    pub ns: u64,
    /// Bytes allocated, in all of them together.
    pub allocated: u64,
    /// Bytes allocated and freed before the phase ended.
    pub temporary: u64,
    /// Bytes allocated that outlived it.
    pub kept: u64,
    /// Bytes freed that had been allocated before it.
    pub freed: u64,
    /// The most that was live above what was live when it began, of any of them, bytes.
    pub peak_above_entry: u64,
    /// The most that was live, of any of them, bytes.
    pub peak: u64,
    /// When that was, ns since the start.
    pub peak_ns: u64,
    /// The most that was live, without what is known only by its end.
    #[serde(skip)]
    highest: i128,
    /// Begin and end of each stretch of time, for [`Phase::over_time`]. Adjacent stretches are
    /// merged when there are too many.
    #[serde(skip)]
    pub during: Vec<(u64, u64)>,
}

impl Phase {
    /// All phases, in the order in which they first began.
    pub fn all(
        recording: &dyn Recording,
        focus: Focus,
        iterations: Option<&Iterations>,
    ) -> Vec<Phase> {
        let mut phases = Phases::new(recording);
        // An uncertain iteration may be a layer, which is no phase of the run.
        phases.iterations = iterations.filter(|all| !all.are_ranges() && all.certainty.sure);
        walk(recording, focus, &mut [&mut phases]);
        phases.finish()
    }

    /// The ranges in the order in which they first began, with their times and without memory.
    /// Returns the time of the last event, too.
    pub fn over_time(recording: &dyn Recording) -> (Vec<Phase>, u64) {
        let mut phases = Phases::new(recording);
        phases.has_times = true;
        for record in recording.events() {
            phases.event(&record);
        }
        let last_ns = phases.last_ns;
        (phases.finish(), last_ns)
    }

    fn take_place(&mut self, from: u64, to: u64) {
        self.during.push((from, to));
        if self.during.len() > STRETCHES {
            let pairs = self.during.chunks(2);
            let joined = pairs.filter_map(|pair| Some((pair.first()?.0, pair.last()?.1)));
            self.during = joined.collect();
        }
    }
}

/// Returns the thread that announced most ranges.
fn busiest(recording: &dyn Recording) -> Option<u32> {
    let mut threads = FxHashMap::<u32, u64>::default();
    for record in recording
        .events()
        .filter(|record| record.event.kind == Kind::RangePush)
    {
        *threads.entry(record.event.thread).or_default() += 1;
    }
    let most = threads
        .into_iter()
        .max_by_key(|(thread, count)| (*count, std::cmp::Reverse(*thread)));
    most.map(|(thread, _)| thread)
}

/// A phase that has not ended.
struct Open {
    /// Number of the phase in `all`.
    phase: usize,
    /// Place of its first event.
    ticket: u64,
    ns: u64,
    entry: i128,
    peak: i128,
    peak_ns: u64,
    allocated: u64,
    temporary: u64,
    freed: u64,
}

struct Phases<'a> {
    recording: &'a dyn Recording,
    thread: Option<u32>,
    iterations: Option<&'a Iterations>,
    names: FxHashMap<u64, usize>,
    /// Ranges, the outermost first.
    open: Vec<Open>,
    /// Ranges that may end on another thread or in another order, by their numbers.
    started: BTreeMap<u64, Open>,
    /// The iteration and its number. It lies beside the ranges: its beginning may be within one.
    iteration: Option<(usize, Open)>,
    /// Live bytes minus the initial bytes of older blocks of which only the end is known. It may be
    /// negative.
    now: i128,
    /// Bytes of these older blocks, added when they end or after the last event.
    unseen: i128,
    last_ns: u64,
    /// True if phases keep the times at which they took place.
    has_times: bool,
    all: Vec<Phase>,
}

impl<'a> Phases<'a> {
    fn new(recording: &'a dyn Recording) -> Phases<'a> {
        Phases {
            recording,
            // Ranges of other threads lie beside these.
            thread: busiest(recording),
            iterations: None,
            names: FxHashMap::default(),
            open: Vec::new(),
            started: BTreeMap::new(),
            iteration: None,
            now: 0,
            unseen: 0,
            last_ns: 0,
            has_times: false,
            all: Vec::new(),
        }
    }

    /// Ends the phases that are open at the end of the run, and returns all.
    fn finish(mut self) -> Vec<Phase> {
        let iteration = self.iteration.take().map(|(_, open)| open);
        for open in std::mem::take(&mut self.open)
            .into_iter()
            .chain(std::mem::take(&mut self.started).into_values())
            .chain(iteration)
        {
            self.end(open, self.last_ns);
        }
        for phase in &mut self.all {
            phase.peak = u64::try_from((phase.highest + self.unseen).max(0)).unwrap_or(u64::MAX);
        }
        self.all
    }

    fn phase(&mut self, name: String, depth: usize) -> usize {
        let known = self.all.iter().position(|phase| phase.name == name);
        known.unwrap_or_else(|| {
            self.all.push(Phase {
                name,
                depth,
                ..Phase::default()
            });
            self.all.len() - 1
        })
    }

    /// Returns the phase of a range, by the id of its name.
    fn of_name(&mut self, id: u64, depth: usize) -> usize {
        match self.names.get(&id) {
            Some(phase) => *phase,
            None if self.all.len() >= NAMES => usize::MAX,
            None => {
                let name = self.recording.text(id).unwrap_or_default();
                let phase = self.phase(without_numbers(&name), depth);
                self.names.insert(id, phase);
                phase
            }
        }
    }

    fn begin(&self, phase: usize, record: &Record) -> Open {
        Open {
            phase,
            ticket: record.ticket,
            ns: record.ns,
            entry: self.now,
            peak: self.now,
            peak_ns: record.ns,
            allocated: 0,
            temporary: 0,
            freed: 0,
        }
    }

    /// Returns all open phases.
    fn all_open(&mut self) -> impl Iterator<Item = &mut Open> {
        let iteration = self.iteration.as_mut().map(|(_, open)| open);
        let ranges = self.open.iter_mut().chain(self.started.values_mut());
        iteration.into_iter().chain(ranges)
    }

    fn end(&mut self, open: Open, ns: u64) {
        let Some(phase) = self.all.get_mut(open.phase) else {
            return;
        };
        phase.count += 1;
        phase.ns = phase.ns.saturating_add(ns.saturating_sub(open.ns));
        if self.has_times {
            phase.take_place(open.ns, ns);
        }
        phase.allocated = phase.allocated.saturating_add(open.allocated);
        phase.temporary = phase.temporary.saturating_add(open.temporary);
        let kept = open.allocated.saturating_sub(open.temporary);
        phase.kept = phase.kept.saturating_add(kept);
        phase.freed = phase.freed.saturating_add(open.freed);
        phase.peak_above_entry = phase
            .peak_above_entry
            .max(u64::try_from(open.peak - open.entry).unwrap_or(0));
        if open.peak > phase.highest || phase.count == 1 {
            (phase.highest, phase.peak_ns) = (open.peak, open.peak_ns);
        }
    }
}

impl Visitor for Phases<'_> {
    fn event(&mut self, record: &Record) {
        let event = &record.event;
        self.last_ns = record.ns;
        if let Some(iterations) = self.iterations {
            let now = iterations.of(record.ticket);
            if now != self.iteration.as_ref().map(|(number, _)| *number) {
                if let Some((_, open)) = self.iteration.take() {
                    self.end(open, record.ns);
                }
                self.iteration = now.map(|number| {
                    let phase = self.phase(ITERATION.to_string(), 0);
                    (number, self.begin(phase, record))
                });
            }
        }
        let depth = self.open.len() + self.started.len() + usize::from(self.iteration.is_some());
        match event.kind {
            Kind::RangeStart if self.started.len() < STARTED => {
                let phase = self.of_name(event.address, depth);
                let open = self.begin(phase, record);
                // A range that never ended ends when its number begins again.
                if let Some(before) = self.started.insert(event.size, open) {
                    self.end(before, record.ns);
                }
            }
            Kind::RangeEnd => {
                if let Some(open) = self.started.remove(&event.size) {
                    self.end(open, record.ns);
                }
            }
            _ if self.thread != Some(event.thread) => {}
            Kind::RangePush => {
                let phase = self.of_name(event.address, depth);
                let open = self.begin(phase, record);
                self.open.push(open);
            }
            Kind::RangePop => {
                if let Some(open) = self.open.pop() {
                    self.end(open, record.ns);
                }
            }
            _ => {}
        }
    }

    fn allocated(&mut self, block: &Block) {
        self.now += i128::from(block.size);
        let now = self.now;
        for open in self.all_open() {
            open.allocated = open.allocated.saturating_add(block.size);
            if now > open.peak {
                (open.peak, open.peak_ns) = (now, block.ns);
            }
        }
    }

    fn freed(&mut self, block: &Block, _: &Record) {
        self.now -= i128::from(block.size);
        for open in self.all_open() {
            if block.ticket >= open.ticket {
                open.temporary = open.temporary.saturating_add(block.size);
            } else {
                open.freed = open.freed.saturating_add(block.size);
            }
        }
    }

    fn freed_unseen(&mut self, block: &Block, _: &Record) {
        self.now -= i128::from(block.size);
        self.unseen += i128::from(block.size);
        for open in self.all_open() {
            open.freed = open.freed.saturating_add(block.size);
        }
    }

    fn never_freed(&mut self, rest: &Block) {
        self.unseen += i128::from(rest.size);
    }
}

#[cfg(test)]
mod tests;
