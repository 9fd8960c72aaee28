//! PyTorch's memory snapshots: the result of `torch.cuda.memory._snapshot()` and the file of
//! `_dump_snapshot()`.
//!
//! Format: `torch/csrc/cuda/memory_snapshot.cpp` of PyTorch writes it. A snapshot has the memory of
//! the caching allocator at the end, block by block, and the last entries of its history. Their
//! number is limited by `_record_memory_history(max_entries=…)`. The events made of it:
//!
//! - Segments are [`Kind::Reserve`] and [`Kind::Release`], tensors [`Kind::TensorAlloc`] and
//!   [`Kind::TensorFree`], with the requested bytes as their size. Memory from before the first
//!   entry comes first, at time 0.
//! - `extra` has the allocated and reserved bytes after each. Allocated is the sum of the blocks. A
//!   block that is there at the end has its size in the snapshot. Any other has the request rounded
//!   up to 512 bytes, its least possible size. So the sum at the end is exactly the snapshot's.
//! - Announced parts of the program (an optimizer's step) are ranges; `user_metadata` and compile
//!   contexts are ranges of the stacks.
//! - The stream of an event is the result of [`Recording::stream`]: tensors' events have no field
//!   for it.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use super::caching::{Caching, Waiting};
use super::pickle::Pickle;
use super::{Coverage, Names, Process, Recording, Way, rank_by_name};
use crate::error::{Result, failed};
use gpushim_trace::{Class, Event, Kind, LiveBlock, Record, flags};

mod entries;
mod history;
#[cfg(test)]
mod made;
mod pools;
mod segments;
mod settings;
mod stacks;
#[cfg(test)]
mod tests;
mod texts;

use entries::{Action, Annotation, Content};
use history::{History, NEVER};
use stacks::Stacks;
use texts::Texts;

/// The text id of the marks that snapshots leave in the history.
const SNAPSHOT_TEXT: u64 = 1;

/// A snapshot that was opened.
#[derive(Debug)]
pub struct Snapshot {
    path: PathBuf,
    wall_ns: u64,
    events: Vec<Record>,
    /// The streams of the events; empty if all are the default stream.
    streams: Vec<u64>,
    live: Vec<LiveBlock>,
    stacks: Stacks,
    texts: Vec<String>,
    rank: Option<u32>,
    has_times: bool,
    /// Blocks that were there before the first entry: the device, their number and their bytes.
    before: Vec<(u8, u64, u64)>,
    /// All settings of the allocator for people, by name.
    settings: Vec<(String, String)>,
    problems: Vec<String>,
    is_damaged: bool,
    caching: Caching,
    is_one_moment: bool,
}

impl Snapshot {
    /// Reads the content of a file.
    ///
    /// # Errors
    /// It is not data, or no snapshot; a sentence that names the content.
    pub fn of(path: &Path, bytes: &[u8]) -> Result<Snapshot> {
        let pickle = Pickle::read(bytes)?;
        let content = Content::of(&pickle).ok_or_else(|| match &pickle.problem {
            Some(problem) => failed!("it is a pickle, but {problem}"),
            None => failed!("it is a pickle, but no PyTorch memory snapshot"),
        })?;
        let problem = pickle.problem.clone();
        let mut snapshot = Snapshot::from_content(path, content);
        snapshot.is_damaged = problem.is_some();
        snapshot.problems.splice(0..0, problem);
        Ok(snapshot)
    }

    /// Adds a further problem in front.
    pub(super) fn with_problem(mut self, problem: String) -> Snapshot {
        self.problems.insert(0, problem);
        self
    }

    /// Adds the damage of its file.
    pub(super) fn with_damage(self, damage: String) -> Snapshot {
        Snapshot {
            is_damaged: true,
            ..self.with_problem(damage)
        }
    }

    fn from_content(path: &Path, mut content: Content) -> Snapshot {
        let devices = content.devices.iter();
        // A history without an allocation or a failed request shows nothing before its end.
        let entries = devices.flat_map(|device| &device.entries);
        let is_one_moment = entries
            .into_iter()
            .all(|entry| !matches!(entry.action, Action::Alloc | Action::OutOfMemory));
        if is_one_moment {
            content
                .devices
                .iter_mut()
                .for_each(|device| device.entries.clear());
        }
        let mut snapshot = Snapshot {
            path: path.to_path_buf(),
            wall_ns: 0,
            events: Vec::new(),
            streams: Vec::new(),
            live: Vec::new(),
            stacks: content.stacks,
            texts: vec!["snapshot".to_string()],
            rank: rank_by_name(path),
            has_times: true,
            before: Vec::new(),
            settings: content.shown_settings,
            problems: Vec::new(),
            is_damaged: false,
            caching: Caching {
                settings: content.settings,
                ..Caching::default()
            },
            is_one_moment,
        };
        // The entry with the earliest time is the start. Ranges are sorted before other events of
        // the same time.
        let mut all = snapshot.ranges(&content.annotations, &content.names);
        let mut histories = Vec::new();
        for device in &content.devices {
            let mut history = History::of(device);
            history.segments = pools::kinds(device, &history);
            snapshot.tell(device.ordinal, &history);
            let first = all.len();
            all.append(&mut history.events);
            histories.push((device.ordinal, first, all.len(), history));
        }
        let begin = all.iter().filter_map(|(time, ..)| *time).min();
        snapshot.wall_ns = begin.unwrap_or(0).saturating_mul(1000);
        let mut timed: Vec<(u64, Event, u64, usize)> = Vec::with_capacity(all.len());
        for (index, (time, event, stream)) in all.into_iter().enumerate() {
            let ns = match (time, begin) {
                // Memory from before the first entry was there when the first range began, too.
                _ if event.flags & flags::EARLIER != 0 => 0,
                (Some(time), Some(begin)) => time.saturating_sub(begin).saturating_mul(1000),
                (None, Some(_)) => 0,
                // Before PyTorch 2.2 there were no times: one µs for each event.
                (_, None) => (index as u64).saturating_mul(1000),
            };
            timed.push((ns, event, stream, index));
        }
        timed.sort_by_key(|(ns, event, ..)| (*ns, event.flags & flags::EARLIER == 0));
        if timed.iter().any(|(_, _, stream, _)| *stream != 0) {
            snapshot.streams = timed.iter().map(|(_, _, stream, _)| *stream).collect();
        }
        let mut tickets = vec![0; timed.len()];
        for (ticket, (.., place)) in timed.iter().enumerate() {
            if let Some(known) = tickets.get_mut(*place) {
                *known = ticket as u64;
            }
        }
        for (device, first, end, history) in histories {
            snapshot.keep(
                device,
                &history,
                tickets.get(first..end).unwrap_or_default(),
            );
        }
        let record = |(ticket, (ns, event, _, _)): (usize, (u64, Event, u64, usize))| Record {
            ticket: ticket as u64,
            ns,
            event,
        };
        snapshot.events = timed.into_iter().enumerate().map(record).collect();
        snapshot.live = live(&snapshot.events);
        if is_one_moment {
            let why = "it has no history, only what was there at its end: call \
                       torch.cuda.memory._record_memory_history() before what is to be seen";
            snapshot.problems.push(why.to_string());
        }
        snapshot.has_times = is_one_moment || begin.is_some();
        if content.bad > 0 {
            let why = format!(
                "{} entries or blocks make no sense and are left out",
                content.bad
            );
            snapshot.problems.push(why);
        }
        if !content.unknown.is_empty() {
            let names = content.unknown.join(", ");
            let why = format!("entries of kinds that are not known are left out: {names}");
            snapshot.problems.push(why);
        }
        snapshot
    }

    /// Keeps the data on the allocator from a device's history, whose events have these tickets.
    fn keep(&mut self, device: u8, history: &History, tickets: &[u64]) {
        let ticket = |place: usize| match tickets.get(place) {
            Some(ticket) => *ticket,
            // The place is beyond the device's last event.
            None if place == NEVER => u64::MAX,
            None => tickets.last().map_or(0, |last| last + 1),
        };
        let segments = history.segments.iter();
        self.caching
            .segments
            .extend(segments.map(|(place, kind)| (ticket(*place), *kind)));
        let completed = history.completed.iter();
        self.caching
            .completed
            .extend(completed.map(|(freed, until)| (ticket(*freed), ticket(*until))));
        let refused = history.refused.iter();
        self.caching
            .refused
            .extend(refused.map(|(place, free, stream)| (ticket(*place), (*free, *stream))));
        let waiting = history.waiting.iter().map(|(block, until)| Waiting {
            device,
            address: block.address,
            bytes: block.requested,
            stream: block.stream,
            until: ticket(*until),
        });
        self.caching.waiting.extend(waiting);
    }

    /// Adds remarks on a device's history.
    fn tell(&mut self, device: u8, history: &History) {
        let (blocks, bytes) = history.before;
        if blocks > 0 {
            self.before.push((device, blocks, bytes));
        }
        let (gone, come) = history.differs;
        if gone > 0 || come > 0 {
            self.problems.push(format!(
                "the history of device {device} ends elsewhere than the snapshot: {gone} blocks are live \
                 only by the history, {come} only by the snapshot"
            ));
        }
        if history.contradictions > 0 {
            self.problems.push(format!(
                "{} entries of device {device} contradict those before them: entries are missing",
                history.contradictions
            ));
        }
    }

    /// Returns the parts of the program that PyTorch announced.
    fn ranges(
        &mut self,
        annotations: &[Annotation],
        names: &Texts,
    ) -> Vec<(Option<u64>, Event, u64)> {
        let mut ids: FxHashMap<u32, u64> = FxHashMap::default();
        let mut open: FxHashMap<(u32, u8), Vec<u64>> = FxHashMap::default();
        let mut events = Vec::new();
        for (number, annotation) in annotations.iter().enumerate() {
            let Annotation { name, device, .. } = annotation;
            let id = *ids.entry(*name).or_insert_with(|| {
                let text = names.get(*name).unwrap_or_default();
                self.texts.push(text.to_string());
                self.texts.len() as u64
            });
            let open = open.entry((*name, *device)).or_default();
            let (kind, number) = if annotation.begins {
                open.push(number as u64);
                (Kind::RangeStart, number as u64)
            } else {
                // The end of a range that began before the history ends nothing.
                let Some(number) = open.pop() else { continue };
                (Kind::RangeEnd, number)
            };
            let event = Event {
                device: *device,
                address: if annotation.begins { id } else { 0 },
                size: number,
                ..Event::new(kind, Class::Device)
            };
            events.push((Some(annotation.time_us), event, 0));
        }
        events
    }
}

/// Returns the blocks that are live after the events, the oldest first.
fn live(events: &[Record]) -> Vec<LiveBlock> {
    let mut live: FxHashMap<(u8, u64), &Record> = FxHashMap::default();
    for record in events {
        let key = (record.event.device, record.event.address);
        match record.event.kind {
            Kind::TensorAlloc => drop(live.insert(key, record)),
            Kind::TensorFree => drop(live.remove(&key)),
            _ => {}
        }
    }
    let mut live: Vec<&Record> = live.into_values().collect();
    live.sort_unstable_by_key(|record| record.ticket);
    let block = |record: &Record| LiveBlock {
        ns: record.ns,
        event: record.event,
    };
    live.into_iter().map(block).collect()
}

impl Recording for Snapshot {
    fn path(&self) -> &Path {
        &self.path
    }

    fn format(&self) -> String {
        "PyTorch memory snapshot".to_string()
    }

    fn wall_ns(&self) -> u64 {
        self.wall_ns
    }

    fn facts(&self) -> Vec<(String, String)> {
        let fact = |key: &str, value: String| (key.to_string(), value);
        let mut facts = vec![fact("framework", "PyTorch".to_string())];
        facts.extend(self.rank.map(|rank| fact("rank", rank.to_string())));
        facts.extend(self.before.iter().map(|(device, blocks, bytes)| {
            let what = format!("{blocks} blocks, {bytes} bytes, were there before the first entry");
            fact(&format!("before.{device}"), what)
        }));
        if !self.has_times {
            let why = "not recorded: each event is shown one microsecond after the one before";
            facts.push(fact("times", why.to_string()));
        }
        let settings = self.settings.iter();
        facts.extend(settings.map(|(key, value)| (format!("allocator.{key}"), value.clone())));
        facts
    }

    fn process(&self) -> Process {
        Process {
            rank: self.rank.map(|rank| rank.to_string()),
            ..Process::default()
        }
    }

    fn has_times(&self) -> bool {
        self.has_times
    }

    fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }

    fn coverage(&self) -> Coverage {
        Coverage {
            damaged: self.is_damaged,
            ..Coverage::complete(self.events.len() as u64)
        }
    }

    fn events(&self) -> Box<dyn Iterator<Item = Record> + Send + '_> {
        Box::new(self.events.iter().copied())
    }

    fn live(&self) -> Option<Vec<LiveBlock>> {
        Some(self.live.clone())
    }

    fn caching(&self) -> Option<&Caching> {
        Some(&self.caching)
    }

    fn is_one_moment(&self) -> bool {
        self.is_one_moment
    }

    fn frames(&self, stack: u32) -> u64 {
        self.stacks.frames(stack)
    }

    fn text(&self, id: u64) -> Option<String> {
        let index = usize::try_from(id).ok()?.checked_sub(1)?;
        self.texts.get(index).cloned()
    }

    fn way(&self, stack: u32) -> Way {
        self.stacks.way(stack)
    }

    fn function(&self, number: u64) -> Option<[String; 2]> {
        self.stacks.function_of(number)
    }

    fn names(&self) -> Box<dyn Names + '_> {
        Box::new(self.stacks.names())
    }

    fn stream(&self, record: &Record) -> Option<u64> {
        let is_known = matches!(
            record.event.kind,
            Kind::TensorAlloc | Kind::TensorFree | Kind::TensorOutOfMemory
        );
        let at = usize::try_from(record.ticket).ok()?;
        is_known.then(|| self.streams.get(at).copied().unwrap_or(0))
    }
}
