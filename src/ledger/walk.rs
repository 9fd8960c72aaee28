//! Goes through a recording once, with the whole life of every block at hand.

use rustc_hash::FxHashMap;

use crate::recording::Recording;
use gpushim_trace::{Class, Event, Kind, Layer, LiveBlock, Record, flags};

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Focus {
    /// Whose blocks: a framework's tensors, or memory of the devices.
    pub layer: Layer,
    /// Of one device only.
    pub device: Option<u8>,
}

impl Focus {
    /// A framework's tensors where the recording has any, which the memory below them cannot tell apart,
    /// else memory of the devices.
    pub fn of(recording: &dyn Recording, device: Option<u8>) -> Focus {
        let is_tensor = |kind| matches!(kind, Kind::TensorAlloc | Kind::TensorFree);
        let live = recording.live().unwrap_or_default();
        let has_tensors = live.iter().any(|block| is_tensor(block.event.kind))
            || (recording.events()).any(|record| is_tensor(record.event.kind));
        Focus {
            layer: if has_tensors {
                Layer::Tensor
            } else {
                Layer::Device
            },
            device,
        }
    }

    /// Whether an event is about it.
    pub fn holds(self, event: &Event) -> bool {
        event.class.layer() == self.layer
            && self
                .device
                .is_none_or(|device| event.device == device || event.device == Event::NO_DEVICE)
    }
}

/// A block or tensor that is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// When it was allocated, ns since the start.
    pub ns: u64,
    /// The place of its allocation among all events, 0 if that can no longer be read.
    pub ticket: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Bytes that it takes up, with what it was rounded up by; of tensors at least so many.
    pub room: u64,
    /// Its address.
    pub address: u64,
    /// Id of the stack of its allocation.
    pub stack: u32,
    /// The thread that allocated it.
    pub thread: u32,
    /// Device ordinal.
    pub device: u8,
    /// What sort of memory it is.
    pub class: Class,
    /// It came from the driver and not from the pool.
    pub forwarded: bool,
}

impl Block {
    pub(crate) fn new(ns: u64, ticket: u64, event: &Event) -> Block {
        Block {
            ns,
            ticket,
            size: event.size,
            room: room(event),
            address: event.address,
            stack: event.stack,
            thread: event.thread,
            device: event.device,
            class: event.class,
            forwarded: event.flags & flags::FORWARDED != 0,
        }
    }
}

/// Tensors begin at multiples of this many bytes (`kMinBlockSize` of PyTorch's caching allocator).
const TENSOR_STEP: u64 = 512;

/// Bytes that a block takes up. The words of a tensor's event are the framework's, not a cost.
fn room(event: &Event) -> u64 {
    match event.class.layer() {
        Layer::Tensor => (event.size.max(1))
            .checked_next_multiple_of(TENSOR_STEP)
            .unwrap_or(event.size),
        _ => event.cost().block.max(event.size),
    }
}

/// Looks on while a recording is gone through.
pub trait Visitor {
    /// Each event, before what follows from it.
    fn event(&mut self, _record: &Record) {}
    /// A block begins to live.
    fn allocated(&mut self, _block: &Block) {}
    /// A block ends, at an event that frees it, drops its context, or gives its address to another block:
    /// its free was lost then.
    fn freed(&mut self, _block: &Block, _at: &Record) {}
}

/// Shows the blocks of a focus to visitors, in the order of time: those first whose allocations can no
/// longer be read but which were live at the end. Returns what is live at the end, the oldest first.
pub fn walk(
    recording: &dyn Recording,
    focus: Focus,
    visitors: &mut [&mut dyn Visitor],
) -> Vec<Block> {
    let mut all = All(visitors);
    let mut walker = Walker::new(recording, focus);
    for record in recording.events() {
        walker.feed(&record, &mut all);
    }
    walker.finish(&mut all);
    in_order(walker.live)
}

/// Several visitors.
struct All<'a, 'b>(&'a mut [&'b mut dyn Visitor]);

impl Visitor for All<'_, '_> {
    fn event(&mut self, record: &Record) {
        self.0.iter_mut().for_each(|one| one.event(record));
    }

    fn allocated(&mut self, block: &Block) {
        self.0.iter_mut().for_each(|one| one.allocated(block));
    }

    fn freed(&mut self, block: &Block, at: &Record) {
        self.0.iter_mut().for_each(|one| one.freed(block, at));
    }
}

/// What [`walk`] does, event by event.
#[derive(Debug)]
pub struct Walker {
    focus: Focus,
    live: FxHashMap<u64, Block>,
    /// What was live at the end, until the first event says how much of it is older.
    kept: Option<Vec<LiveBlock>>,
}

impl Walker {
    /// Of the blocks of a focus.
    pub fn new(recording: &dyn Recording, focus: Focus) -> Walker {
        Walker {
            focus,
            live: FxHashMap::default(),
            kept: Some(recording.live().unwrap_or_default()),
        }
    }

    /// What is live now, by address.
    pub fn live(&self) -> &FxHashMap<u64, Block> {
        &self.live
    }

    /// The next event.
    pub fn feed(&mut self, record: &Record, visitor: &mut impl Visitor) {
        if self.kept.is_some() {
            self.begin(record.ns, visitor);
        }
        let (focus, event) = (self.focus, &record.event);
        visitor.event(record);
        match event.kind {
            Kind::Alloc | Kind::TensorAlloc if event.result == 0 && focus.holds(event) => {
                let block = Block::new(record.ns, record.ticket, event);
                if let Some(before) = self.live.insert(event.address, block) {
                    visitor.freed(&before, record);
                }
                visitor.allocated(&block);
            }
            Kind::Free | Kind::TensorFree
                if event.result == 0 && event.class.layer() == focus.layer =>
            {
                if let Some(block) = self.live.remove(&event.address) {
                    visitor.freed(&block, record);
                }
            }
            Kind::ContextGone if focus.layer == Layer::Device => {
                for block in gone(&mut self.live, event) {
                    visitor.freed(&block, record);
                }
            }
            _ => {}
        }
    }

    /// After the last event.
    pub fn finish(&mut self, visitor: &mut impl Visitor) {
        self.begin(u64::MAX, visitor);
    }

    fn begin(&mut self, first: u64, visitor: &mut impl Visitor) {
        let older = older(self.kept.take().unwrap_or_default(), first);
        for one in older.iter().filter(|one| self.focus.holds(&one.event)) {
            let block = Block::new(one.ns, 0, &one.event);
            visitor.allocated(&block);
            self.live.insert(block.address, block);
        }
    }
}

/// What was live at the end and is older than the first event that can be read.
pub(super) fn older(mut live: Vec<LiveBlock>, first_ns: u64) -> Vec<LiveBlock> {
    live.retain(|block| block.ns < first_ns);
    live
}

/// Takes out the pool's blocks that went with a context. Blocks do not name their context: as in
/// [`crate::report::summarize`], they are its own if together they are no more than it had.
fn gone(live: &mut FxHashMap<u64, Block>, event: &Event) -> Vec<Block> {
    // The event seldom names the device.
    let is_there = |device| event.device == Event::NO_DEVICE || device == event.device;
    let is_pooled = |block: &Block| !block.forwarded && is_there(block.device);
    let all = live.values().filter(|block| is_pooled(block));
    let bytes = all.fold(0_u64, |sum, block| sum.saturating_add(block.room));
    if bytes > event.size {
        return Vec::new();
    }
    let mut gone: Vec<Block> = live
        .values()
        .filter(|block| is_pooled(block))
        .copied()
        .collect();
    live.retain(|_, block| !is_pooled(block));
    gone.sort_unstable_by_key(|block| block.address);
    gone
}

/// Takes what is live just before an event.
#[derive(Debug)]
pub struct LiveAt {
    ticket: u64,
    live: FxHashMap<u64, Block>,
    taken: bool,
}

impl LiveAt {
    /// Just before the event of this place, or after the last one if there is none of it or after it.
    pub fn new(ticket: u64) -> LiveAt {
        LiveAt {
            ticket,
            live: FxHashMap::default(),
            taken: false,
        }
    }

    /// What was live then, the oldest first.
    pub fn into_blocks(self) -> Vec<Block> {
        in_order(self.live)
    }
}

impl Visitor for LiveAt {
    fn event(&mut self, record: &Record) {
        self.taken |= record.ticket >= self.ticket;
    }

    fn allocated(&mut self, block: &Block) {
        if !self.taken {
            self.live.insert(block.address, *block);
        }
    }

    fn freed(&mut self, block: &Block, _: &Record) {
        if !self.taken {
            self.live.remove(&block.address);
        }
    }
}

/// The oldest first.
pub(crate) fn in_order(live: FxHashMap<u64, Block>) -> Vec<Block> {
    let mut live: Vec<Block> = live.into_values().collect();
    live.sort_unstable_by_key(|block| (block.ns, block.ticket, block.address));
    live
}
