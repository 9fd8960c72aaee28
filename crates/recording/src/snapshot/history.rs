//! Events from a device's history.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::caching::Segment;
use crate::snapshot::entries::{Action, Block, DeviceHistory, TraceEntry};
use crate::snapshot::segments::Segments;
use gpushim_torch::allocator;
use gpushim_trace::{Class, Event, Kind, flags};

/// The events of a device, and remarks on them.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Events in order, each with the wall clock in µs and the stream. An entry without a time has
    /// the one of the event before. Blocks from before the first entry come first.
    pub events: Vec<(Option<u64>, Event, u64)>,
    /// Blocks that were allocated before the first entry, and their bytes.
    pub before: (u64, u64),
    /// Number of allocations of a live address, and of frees of an address that was not live.
    pub contradictions: u64,
    /// Number of blocks that are live after the events but not in the snapshot, and the reverse.
    pub differs: (u64, u64),
    /// Places of the events that map or unmap parts of expandable segments.
    pub mappings: FxHashSet<usize>,
    /// Use of the memory that events reserve, by the places of the events.
    pub segments: Vec<(usize, Segment)>,
    /// Frees of memory in use by streams, each with the event that completes the use. Both are
    /// places among the events; [`NEVER`] is beyond the end.
    pub completed: Vec<(usize, usize)>,
    /// Requests that failed: the places among the events, the free bytes of the device, and the
    /// stream.
    pub refused: Vec<(usize, Option<u64>, u64)>,
    /// Blocks in use by streams alone when the history began, each with the event that completes
    /// the use.
    pub waiting: Vec<(Block, usize)>,
}

/// The place of an event that does not occur.
pub(super) const NEVER: usize = usize::MAX;

/// The state of an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Live,
    Freed,
}

impl History {
    /// Makes the events of a device. A tensor is freed when the program frees it. Memory that then
    /// waits for a stream is no longer allocated, as in `torch.cuda.memory_allocated()`.
    pub(super) fn of(device: &DeviceHistory) -> History {
        let mut history = History::default();
        let device = &with_requested(device);
        let before = history.look(device);
        let mut segments = Segments::before(device);
        let mut writer = Writer {
            device: device.ordinal,
            allocated: 0,
            reserved: 0,
            sizes: device.blocks.iter().map(|b| (b.address, b.size)).collect(),
            left: FxHashMap::default(),
            live: FxHashMap::default(),
            freed: FxHashMap::default(),
            completed: Vec::new(),
            events: Vec::new(),
        };
        let mut waiting = Waits::at_beginning(device);
        let entries = device.entries.iter();
        for entry in entries.filter(|entry| entry.action == Action::Alloc) {
            *writer.left.entry(entry.address).or_default() += 1;
        }
        let first = device.entries.iter().find_map(|entry| entry.time_us);
        for (at, size) in segments.held() {
            writer.segment(first, (at, size), true, 0);
        }
        for block in &before {
            writer.allocated(first, block);
        }
        for (_, event, _) in &mut writer.events {
            event.flags |= flags::EARLIER;
        }
        history.before = (before.len() as u64, writer.allocated);
        let mut time = first;
        for entry in &device.entries {
            time = time.max(entry.time_us);
            match entry.action {
                Action::SegmentAlloc | Action::SegmentFree => {
                    let takes = entry.action == Action::SegmentAlloc;
                    for piece in segments.apply(entry, takes) {
                        if entry.is_mapping {
                            history.mappings.insert(writer.events.len());
                        }
                        writer.segment(time, piece, takes, entry.stream);
                    }
                }
                Action::Alloc => writer.alloc(time, entry),
                Action::FreeRequested => writer.free(time, entry),
                Action::FreeCompleted => {
                    waiting.end(entry.address, writer.events.len());
                    writer.complete(entry.address);
                }
                Action::Snapshot => writer.plain(time, Kind::Mark, entry),
                Action::OutOfMemory => {
                    let place = writer.events.len();
                    history
                        .refused
                        .push((place, entry.device_free, entry.stream));
                    writer.plain(time, Kind::TensorOutOfMemory, entry);
                }
            }
        }
        writer.end(device);
        history.completed = writer.completed;
        history.waiting = waiting.0.into_values().collect();
        history.events = writer.events;
        history
    }

    /// Finds the blocks that were allocated before the first entry. They are freed without an
    /// allocation, or are there at the end without any entry.
    fn look(&mut self, device: &DeviceHistory) -> Vec<Block> {
        let mut seen: FxHashMap<u64, Seen> = FxHashMap::default();
        let mut before = Vec::new();
        for entry in &device.entries {
            match entry.action {
                Action::Alloc => {
                    let before = seen.insert(entry.address, Seen::Live);
                    self.contradictions += u64::from(before == Some(Seen::Live));
                }
                Action::FreeRequested => match seen.insert(entry.address, Seen::Freed) {
                    Some(Seen::Live) => {}
                    Some(Seen::Freed) => self.contradictions += 1,
                    None => before.push(earlier(entry)),
                },
                // A block that waited for its stream when the history began was freed before.
                Action::FreeCompleted => {
                    seen.entry(entry.address).or_insert(Seen::Freed);
                }
                _ => {}
            }
        }
        let mut at_end = FxHashSet::default();
        for block in &device.blocks {
            if !at_end.insert(block.address) {
                self.contradictions += 1;
                continue;
            }
            match seen.get(&block.address) {
                None => before.push(*block),
                Some(Seen::Live) => {}
                Some(Seen::Freed) => self.differs.1 += 1,
            }
        }
        let live = seen.iter().filter(|(_, seen)| **seen == Seen::Live);
        let gone = live.filter(|(address, _)| !at_end.contains(address));
        self.differs.0 = gone.count() as u64;
        before.sort_by_key(|block| block.address);
        before
    }
}

/// Adds a requested free before each completed one, if there are none: some tools write only the
/// completion.
fn with_requested(device: &DeviceHistory) -> Cow<'_, DeviceHistory> {
    let has = |action| device.entries.iter().any(|entry| entry.action == action);
    if has(Action::FreeRequested) || !has(Action::FreeCompleted) {
        return Cow::Borrowed(device);
    }
    let mut device = device.clone();
    for entry in &mut device.entries {
        if entry.action == Action::FreeCompleted {
            entry.action = Action::FreeRequested;
        }
    }
    Cow::Owned(device)
}

/// Blocks in use by streams alone, by address, each with the event that completes the use.
struct Waits(BTreeMap<u64, (Block, usize)>);

impl Waits {
    /// Finds the blocks that wait when the history begins. They have only a completion, or wait at
    /// its end without any entry.
    fn at_beginning(device: &DeviceHistory) -> Waits {
        let (mut seen, mut waits) = (FxHashSet::default(), BTreeMap::new());
        for entry in &device.entries {
            let is_of_block = matches!(
                entry.action,
                Action::Alloc | Action::FreeRequested | Action::FreeCompleted
            );
            let is_first = is_of_block && seen.insert(entry.address);
            if is_first && entry.action == Action::FreeCompleted {
                waits.insert(entry.address, (earlier(entry), NEVER));
            }
        }
        for block in device
            .waiting
            .iter()
            .filter(|one| !seen.contains(&one.address))
        {
            waits.insert(block.address, (*block, NEVER));
        }
        Waits(waits)
    }

    fn end(&mut self, address: u64, at: usize) {
        if let Some((_, until)) = self
            .0
            .get_mut(&address)
            .filter(|(_, until)| *until == NEVER)
        {
            *until = at;
        }
    }
}

/// Returns the block of an entry that was allocated before the history began.
fn earlier(entry: &TraceEntry) -> Block {
    Block {
        address: entry.address,
        size: allocator::block(entry.size),
        requested: entry.size,
        stream: entry.stream,
        stack: 0,
    }
}

/// Makes events, and keeps their sums.
struct Writer {
    device: u8,
    /// Bytes of the blocks that are live.
    allocated: u64,
    reserved: u64,
    /// Bytes of the blocks at the end, by address.
    sizes: FxHashMap<u64, u64>,
    /// Number of allocations of an address to come: the last one is there at the end.
    left: FxHashMap<u64, u32>,
    /// Live blocks: bytes of the block, bytes requested.
    live: FxHashMap<u64, (u64, u64)>,
    /// Places of frees whose completion has not been read.
    freed: FxHashMap<u64, usize>,
    completed: Vec<(usize, usize)>,
    events: Vec<(Option<u64>, Event, u64)>,
}

impl Writer {
    fn alloc(&mut self, time: Option<u64>, entry: &TraceEntry) {
        let left = self.left.get_mut(&entry.address);
        let is_last = left.is_some_and(|left| {
            *left = left.saturating_sub(1);
            *left == 0
        });
        // The size of other blocks is not recorded: it is at least this.
        let known = self.sizes.get(&entry.address).filter(|_| is_last).copied();
        let least = earlier(entry);
        let block = Block {
            size: known.unwrap_or(least.size),
            stack: entry.stack,
            ..least
        };
        self.allocated(time, &block);
    }

    fn allocated(&mut self, time: Option<u64>, block: &Block) {
        let sizes = (block.size, block.requested);
        if let Some((before, _)) = self.live.insert(block.address, sizes) {
            self.allocated = self.allocated.saturating_sub(before);
        }
        self.allocated = self.allocated.saturating_add(block.size);
        let event = Event {
            address: block.address,
            size: block.requested,
            stack: block.stack,
            ..self.event(Kind::TensorAlloc)
        };
        self.events.push((time, event, block.stream));
    }

    fn free(&mut self, time: Option<u64>, entry: &TraceEntry) {
        let Some((size, requested)) = self.live.remove(&entry.address) else {
            return;
        };
        self.allocated = self.allocated.saturating_sub(size);
        let event = Event {
            address: entry.address,
            size: requested,
            stack: entry.stack,
            ..self.event(Kind::TensorFree)
        };
        self.freed.insert(entry.address, self.events.len());
        self.events.push((time, event, entry.stream));
    }

    /// Completes the use of freed memory by streams. It is mostly complete at once.
    fn complete(&mut self, address: u64) {
        let now = self.events.len();
        if let Some(freed) = self.freed.remove(&address).filter(|freed| freed + 1 < now) {
            self.completed.push((freed, now));
        }
    }

    /// Adds the blocks that streams still use at the end.
    fn end(&mut self, device: &DeviceHistory) {
        let used = device.waiting.iter();
        let freed = used.filter_map(|block| self.freed.get(&block.address));
        self.completed.extend(freed.map(|freed| (*freed, NEVER)));
    }

    fn segment(
        &mut self,
        time: Option<u64>,
        (address, size): (u64, u64),
        takes: bool,
        stream: u64,
    ) {
        let kind = if takes {
            self.reserved = self.reserved.saturating_add(size);
            Kind::Reserve
        } else {
            self.reserved = self.reserved.saturating_sub(size);
            Kind::Release
        };
        let event = Event {
            device: self.device,
            address,
            size,
            ..Event::new(kind, Class::Device)
        };
        self.events.push((time, event, stream));
    }

    fn plain(&mut self, time: Option<u64>, kind: Kind, entry: &TraceEntry) {
        let mut event = Event {
            stack: entry.stack,
            size: entry.size,
            ..self.event(kind)
        };
        if kind == Kind::Mark {
            event.address = crate::snapshot::SNAPSHOT_TEXT;
            (event.size, event.extra) = (0, [0; 2]);
        }
        self.events.push((time, event, entry.stream));
    }

    fn event(&self, kind: Kind) -> Event {
        Event {
            device: self.device,
            extra: [self.allocated, self.reserved],
            ..Event::new(kind, Class::Tensor)
        }
    }
}
