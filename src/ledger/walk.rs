//! Goes through a recording once, with the whole life of every block at hand.

use rustc_hash::FxHashMap;

use super::apply::Ledger;
use super::block::{Block, Focus, is_on};
use super::change::Change;
use super::unseen::Unseen;
use crate::recording::Recording;
use gpushim_trace::{Class, Layer, LiveBlock, Record};

/// Is called with the events and blocks of a recording.
pub trait Visitor {
    /// Each event, before what follows from it.
    fn event(&mut self, _record: &Record) {}
    /// A block begins to live.
    fn allocated(&mut self, _block: &Block) {}
    /// A block ends, at an event that frees it, drops its context, or gives its address to another block:
    /// its free was lost then.
    fn freed(&mut self, _block: &Block, _at: &Record) {}
    /// Ends a block that was there when the recording began, and of which only this is known.
    /// By default it is freed like any other.
    fn freed_unseen(&mut self, block: &Block, at: &Record) {
        self.freed(block, at);
    }
    /// After the last event: memory that was there when the recording began and at its end, and of which only the sum
    /// is known; as one block.
    fn never_freed(&mut self, _rest: &Block) {}
}

/// Shows the blocks of a focus to visitors, in the order of time; first the blocks that were live at the end and whose
/// allocations can no longer be read. Returns the blocks that are live at the end, the oldest first, with what is
/// known only as a sum as one block for each device.
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

    fn freed_unseen(&mut self, block: &Block, at: &Record) {
        self.0
            .iter_mut()
            .for_each(|one| one.freed_unseen(block, at));
    }

    fn never_freed(&mut self, rest: &Block) {
        self.0.iter_mut().for_each(|one| one.never_freed(rest));
    }
}

/// What [`walk`] does, event by event.
#[derive(Debug)]
pub struct Walker {
    layer: Layer,
    ledger: Ledger,
    /// What was live at the end, until the first event says how much of it is older.
    kept: Option<Vec<LiveBlock>>,
    /// Bytes that are live at the end, by device, where not all of their blocks are known.
    sums: Vec<(u8, u64)>,
}

/// Devices of which a recording keeps sums.
const DEVICES: u8 = 8;

impl Walker {
    /// Of the blocks of a focus.
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

    /// The live blocks, by address.
    pub fn live(&self) -> &FxHashMap<u64, Block> {
        self.ledger.live(self.layer)
    }

    /// The next event.
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

    /// After the last event. Returns what is live and known only as a sum, as one block for each device.
    pub fn finish(&mut self, visitor: &mut impl Visitor) -> Vec<Block> {
        self.begin(u64::MAX, visitor);
        let rests: Vec<Block> = self.sums.iter().filter_map(|sum| self.rest(*sum)).collect();
        rests.iter().for_each(|rest| visitor.never_freed(rest));
        rests
    }

    /// What a sum has more than the blocks that are known, as one block.
    fn rest(&self, (device, sum): (u8, u64)) -> Option<Block> {
        let known = self.live().values().filter(|one| one.device == device);
        let known = known.fold(0, |sum: u64, one| sum.saturating_add(one.size));
        let size = sum.checked_sub(known).filter(|size| *size > 0)?;
        Some(Block {
            ns: 0,
            ticket: 0,
            size,
            room: size,
            address: 0,
            stack: 0,
            thread: 0,
            device,
            class: match self.layer {
                Layer::Tensor => Class::Tensor,
                _ => Class::Device,
            },
            forwarded: false,
            captured: false,
            earlier: true,
        })
    }

    fn begin(&mut self, first: u64, visitor: &mut impl Visitor) {
        let older = older(self.kept.take().unwrap_or_default(), first);
        self.ledger.begin(&older, &mut |change| {
            if let Change::WasThere(block) = change {
                visitor.allocated(block);
            }
        });
    }
}

/// The blocks that were live at the end and were allocated before the first readable event.
pub(super) fn older(mut live: Vec<LiveBlock>, first_ns: u64) -> Vec<LiveBlock> {
    live.retain(|block| block.ns < first_ns);
    live
}

/// Keeps the blocks that are live just before an event.
#[derive(Debug)]
pub struct LiveAt {
    ticket: u64,
    live: FxHashMap<u64, Block>,
    /// Blocks of before the recording that ended later, or never.
    unseen: Unseen,
    taken: bool,
}

impl LiveAt {
    /// Just before the event of this place, or after the last one if there is none of it or after it.
    pub fn new(ticket: u64) -> LiveAt {
        LiveAt {
            ticket,
            live: FxHashMap::default(),
            unseen: Unseen::default(),
            taken: false,
        }
    }

    /// The blocks that were live then, the oldest first; those too of which only the end is known.
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

/// The oldest first.
pub(crate) fn in_order(live: FxHashMap<u64, Block>) -> Vec<Block> {
    sorted(live.into_values().collect())
}

fn sorted(mut live: Vec<Block>) -> Vec<Block> {
    live.sort_unstable_by_key(|block| (block.ns, block.ticket, block.address));
    live
}
