//! Goes through a recording once, and follows every block from its allocation to its free.

use rustc_hash::FxHashMap;

use super::apply::Ledger;
use super::block::{Block, Focus, is_on};
use super::change::Change;
use super::unseen::Unseen;
use gpushim_recording::Recording;
use gpushim_trace::{Class, Event, Kind, Layer, LiveBlock, Record};

/// Receives the events and blocks of a recording.
pub trait Visitor {
    /// Receives each event, before its changes.
    fn event(&mut self, _record: &Record) {}
    /// Receives a block that was allocated.
    fn allocated(&mut self, _block: &Block) {}
    /// Receives a block that ended: it was freed, its context was destroyed, or its address was
    /// allocated again. In the last case its free was lost.
    fn freed(&mut self, _block: &Block, _at: &Record) {}
    /// Receives a block from before the recording, of which only the end is known. By default it is
    /// freed like any other.
    fn freed_unseen(&mut self, block: &Block, at: &Record) {
        self.freed(block, at);
    }
    /// Receives, after the last event, memory that was there from the beginning to the end of the
    /// recording. Only its sum is known; it is one block.
    fn never_freed(&mut self, _rest: &Block) {}
}

/// Shows the blocks of a focus to visitors, in the order of time. First are the blocks that are
/// live at the end and whose allocations can no longer be read.
///
/// Returns the blocks that are live at the end, the oldest first. Memory of which only the sum is
/// known is one block for each device.
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
    let rests = walker.finish(&mut all);
    let mut live: Vec<Block> = walker.live().values().copied().collect();
    live.extend(rests);
    sorted(live)
}

/// A visitor that calls several.
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

    fn freed_unseen(&mut self, block: &Block, at: &Record) {
        self.0
            .iter_mut()
            .for_each(|one| one.freed_unseen(block, at));
    }

    fn never_freed(&mut self, rest: &Block) {
        self.0.iter_mut().for_each(|one| one.never_freed(rest));
    }
}

/// The state of [`walk`] from event to event.
#[derive(Debug)]
pub struct Walker {
    layer: Layer,
    ledger: Ledger,
    /// Blocks that are live at the end, until the first event shows the older ones.
    kept: Option<Vec<LiveBlock>>,
    /// Bytes that are live at the end, by device, if not all of their blocks are known.
    sums: Vec<(u8, u64)>,
}

/// Number of devices of which a recording keeps sums.
const DEVICES: u8 = 8;

impl Walker {
    /// Creates a walker over the blocks of a focus.
    pub fn new(recording: &dyn Recording, focus: Focus) -> Walker {
        let devices = (0..DEVICES).filter(|device| is_on(focus.device, *device));
        let sum = |device| Some((device, recording.live_bytes(focus.layer, device)?));
        Walker {
            layer: focus.layer,
            ledger: Ledger::of(focus),
            kept: Some(recording.live().unwrap_or_default()),
            sums: devices.filter_map(sum).collect(),
        }
    }

    /// Returns the live blocks, by address.
    pub fn live(&self) -> &FxHashMap<u64, Block> {
        self.ledger.live(self.layer)
    }

    /// Takes the next event into account.
    pub fn feed(&mut self, record: &Record, visitor: &mut impl Visitor) {
        if self.kept.is_some() {
            self.begin(record.ns, visitor);
        }
        visitor.event(record);
        self.ledger.apply(record, &mut |change| match change {
            Change::Allocated(block) => visitor.allocated(block),
            Change::Freed(block) => visitor.freed(block, record),
            Change::FreedUnseen(block) => visitor.freed_unseen(block, record),
            _ => {}
        });
    }

    /// Ends the walk after the last event. Returns memory of which only the sum is known, as one
    /// block for each live device.
    pub fn finish(&mut self, visitor: &mut impl Visitor) -> Vec<Block> {
        self.begin(u64::MAX, visitor);
        let rests: Vec<Block> = self.sums.iter().filter_map(|sum| self.rest(*sum)).collect();
        rests.iter().for_each(|rest| visitor.never_freed(rest));
        rests
    }

    /// Returns the bytes of a sum beyond the known blocks, as one block.
    fn rest(&self, (device, sum): (u8, u64)) -> Option<Block> {
        let known = self.live().values().filter(|one| one.device == device);
        let known = known.fold(0, |sum: u64, one| sum.saturating_add(one.size));
        let size = sum.checked_sub(known).filter(|size| *size > 0)?;
        let class = match self.layer {
            Layer::Tensor => Class::Tensor,
            _ => Class::Device,
        };
        Some(Block {
            size,
            room: size,
            device,
            earlier: true,
            ..Block::new(0, 0, &Event::new(Kind::Alloc, class))
        })
    }

    fn begin(&mut self, first: u64, visitor: &mut impl Visitor) {
        let mut older = self.kept.take().unwrap_or_default();
        older.retain(|block| block.ns < first);
        self.ledger.begin(&older, &mut |change| {
            if let Change::WasThere(block) = change {
                visitor.allocated(block);
            }
        });
    }
}

/// Keeps the blocks that are live just before an event.
#[derive(Debug)]
pub struct LiveAt {
    ticket: u64,
    live: FxHashMap<u64, Block>,
    /// Blocks from before the recording that ended later, or never.
    unseen: Unseen,
    taken: bool,
}

impl LiveAt {
    /// Keeps the blocks that are live just before the event of this place, or after the last event
    /// if there is no later one.
    pub fn new(ticket: u64) -> LiveAt {
        LiveAt {
            ticket,
            live: FxHashMap::default(),
            unseen: Unseen::default(),
            taken: false,
        }
    }

    /// Returns the blocks that were live then, the oldest first. Blocks of which only the end is
    /// known are included.
    pub fn into_blocks(self) -> Vec<Block> {
        let mut live: Vec<Block> = self.live.into_values().collect();
        live.extend(self.unseen.live_at(self.ticket));
        sorted(live)
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

    fn freed_unseen(&mut self, block: &Block, at: &Record) {
        if self.taken {
            self.unseen.ended(block, at);
        }
    }

    fn never_freed(&mut self, rest: &Block) {
        self.unseen.never_ended(rest);
    }
}

/// Returns blocks, the oldest first.
pub(crate) fn in_order(live: FxHashMap<u64, Block>) -> Vec<Block> {
    sorted(live.into_values().collect())
}

fn sorted(mut live: Vec<Block>) -> Vec<Block> {
    live.sort_unstable_by_key(|block| (block.ns, block.ticket, block.address));
    live
}
