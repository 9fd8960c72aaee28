//! The program's own ranges over time, and which of them are its iterations.

use rustc_hash::FxHashMap;

use super::keep::Keep;
use super::pack::Pack;
use super::stacks::Stacks;
use crate::error::Result;
use crate::loops::without_numbers;
use gpushim_trace::{Kind, Record};

/// Most ranges that are kept. The shortest are dropped.
const MOST: usize = 60_000;
/// Ranges open at once on a thread beyond these are not followed.
const DEPTH_MOST: usize = 64;
/// Fewest repeats of an iteration's phase, and the least share that it fills of the time between
/// its first and its last.
const ITERATIONS_LEAST: usize = 3;
const ITERATIONS_FILL: f64 = 0.7;

/// One range, pushed on a thread or started by number.
#[derive(Clone, Copy, Debug)]
struct Phase {
    from: u64,
    to: u64,
    /// Number of the text of its name.
    name: u32,
    /// The text of its name without numbers.
    family: u32,
    /// 0 for ranges that may end on another thread.
    thread: u32,
    depth: u32,
}

/// The ranges of a recording.
pub struct Phases {
    keep: Keep<Phase>,
    cut: u64,
    /// Open ranges: by thread; and by number, with the lane of each.
    open: FxHashMap<u32, Vec<Phase>>,
    started: FxHashMap<u64, Phase>,
    lanes: Vec<bool>,
    names: FxHashMap<u64, (u32, u32)>,
    threads: FxHashMap<u32, u32>,
}

impl Phases {
    pub fn new() -> Phases {
        Phases {
            keep: Keep::new(MOST),
            cut: 0,
            open: FxHashMap::default(),
            started: FxHashMap::default(),
            lanes: Vec::new(),
            names: FxHashMap::default(),
            threads: FxHashMap::default(),
        }
    }

    /// Applies an event. `text` returns the name of an id that was not seen before.
    pub fn feed(
        &mut self,
        record: &Record,
        stacks: &mut Stacks<'_>,
        text: impl FnOnce(u64) -> Option<String>,
    ) {
        let event = &record.event;
        match event.kind {
            Kind::RangePush => {
                let (name, family) = self.name(event.address, stacks, text);
                let open = self.open.entry(event.thread).or_default();
                let depth = open.len();
                if depth < DEPTH_MOST {
                    open.push(Phase {
                        from: record.ns,
                        to: record.ns,
                        name,
                        family,
                        thread: event.thread,
                        depth: depth as u32,
                    });
                }
            }
            Kind::RangePop => {
                let open = self.open.get_mut(&event.thread);
                if let Some(phase) = open.and_then(Vec::pop) {
                    self.end(phase, record.ns);
                }
            }
            Kind::RangeStart => {
                let (name, family) = self.name(event.address, stacks, text);
                let free = self.lanes.iter().position(|taken| !taken);
                let lane = free.unwrap_or(self.lanes.len());
                if lane >= DEPTH_MOST {
                    self.cut += 1;
                    return;
                }
                match self.lanes.get_mut(lane) {
                    Some(taken) => *taken = true,
                    None => self.lanes.push(true),
                }
                let phase = Phase {
                    from: record.ns,
                    to: record.ns,
                    name,
                    family,
                    thread: 0,
                    depth: lane as u32,
                };
                if let Some(before) = self.started.insert(event.size, phase) {
                    self.leave(before, record.ns);
                }
            }
            Kind::RangeEnd => {
                if let Some(phase) = self.started.remove(&event.size) {
                    self.leave(phase, record.ns);
                }
            }
            Kind::ThreadName => {
                let (name, _) = self.name(event.address, stacks, text);
                self.threads.insert(event.thread, name);
            }
            _ => {}
        }
    }

    fn name(
        &mut self,
        id: u64,
        stacks: &mut Stacks<'_>,
        text: impl FnOnce(u64) -> Option<String>,
    ) -> (u32, u32) {
        *self.names.entry(id).or_insert_with(|| {
            let name = text(id).unwrap_or_default();
            (stacks.text(&name), stacks.text(&without_numbers(&name)))
        })
    }

    fn leave(&mut self, phase: Phase, ns: u64) {
        if let Some(taken) = self.lanes.get_mut(phase.depth as usize) {
            *taken = false;
        }
        self.end(phase, ns);
    }

    fn end(&mut self, phase: Phase, ns: u64) {
        let phase = Phase { to: ns, ..phase };
        let length = ns.saturating_sub(phase.from);
        let cut = &mut self.cut;
        self.keep.give(length, phase, |_| *cut += 1);
    }

    /// Puts all ranges into the payload. Ranges that are still open last to the end.
    pub fn pack(mut self, end_ns: u64, pack: &mut Pack) -> Result<()> {
        let open = std::mem::take(&mut self.open).into_values().flatten();
        let started = std::mem::take(&mut self.started).into_values();
        for phase in open.chain(started).collect::<Vec<_>>() {
            self.end(phase, end_ns);
        }
        let cut = &mut self.cut;
        let mut all = self.keep.finish(|_| *cut += 1);
        all.sort_unstable_by_key(|phase| (phase.thread, phase.from, phase.depth));
        let is_iteration = iterations(&all);
        pack.head("phases_cut", &self.cut)?;
        pack.head("iteration", &is_iteration)?;
        let mut threads: Vec<_> = self.threads.into_iter().collect();
        threads.sort_unstable();
        pack.head("threads", &threads)?;
        pack.plain("phase_thread", all.iter().map(|phase| phase.thread.into()));
        pack.delta("phase_from", all.iter().map(|phase| phase.from));
        let length = |phase: &Phase| phase.to.saturating_sub(phase.from);
        pack.plain("phase_length", all.iter().map(length));
        pack.plain("phase_depth", all.iter().map(|phase| phase.depth.into()));
        pack.delta("phase_name", all.iter().map(|phase| phase.name.into()));
        pack.delta("phase_family", all.iter().map(|phase| phase.family.into()));
        Ok(())
    }
}

/// Finds the phase that is an iteration: its thread, depth and family.
///
/// Such a phase repeats, and fills most of the time from its first to its last. This time is at
/// least 0.3 of the run. Of several phases, the one with most repeats is taken.
fn iterations(phases: &[Phase]) -> Option<(u32, u32, u32)> {
    let mut groups = FxHashMap::<(u32, u32, u32), (usize, u64, u64, u64)>::default();
    for phase in phases.iter().filter(|phase| phase.thread != 0) {
        let key = (phase.thread, phase.depth, phase.family);
        let group = groups.entry(key).or_insert((0, phase.from, 0, 0));
        group.0 += 1;
        group.1 = group.1.min(phase.from);
        group.2 = group.2.max(phase.to);
        group.3 += phase.to.saturating_sub(phase.from);
    }
    let longest = phases.iter().map(|phase| phase.to).max().unwrap_or(0);
    let fits = |(count, from, to, filled): &(usize, u64, u64, u64)| {
        let span = to.saturating_sub(*from) as f64;
        // Not something that happens only for a while, as layers of one step do.
        *count >= ITERATIONS_LEAST
            && *filled as f64 >= ITERATIONS_FILL * span
            && span >= 0.3 * longest as f64
    };
    let found = groups.into_iter().filter(|(_, group)| fits(group));
    let best = found.max_by_key(|(key, group)| (group.0, std::cmp::Reverse(*key)));
    best.map(|(key, _)| key)
}
