//! Goes through a recording once, with the whole life of every block at hand.

use rustc_hash::FxHashMap;

use super::apply::Ledger;
use super::block::{Block, Focus};
use super::change::Change;
use crate::recording::Recording;
use gpushim_trace::{Layer, LiveBlock, Record};

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
    in_order(walker.live().clone())
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
    layer: Layer,
    ledger: Ledger,
    /// What was live at the end, until the first event says how much of it is older.
    kept: Option<Vec<LiveBlock>>,
}

impl Walker {
    /// Of the blocks of a focus.
    pub fn new(recording: &dyn Recording, focus: Focus) -> Walker {
        Walker {
            layer: focus.layer,
            ledger: Ledger::of(focus),
            kept: Some(recording.live().unwrap_or_default()),
        }
    }

    /// What is live now, by address.
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
            _ => {}
        });
    }

    /// After the last event.
    pub fn finish(&mut self, visitor: &mut impl Visitor) {
        self.begin(u64::MAX, visitor);
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

/// What was live at the end and is older than the first event that can be read.
pub(super) fn older(mut live: Vec<LiveBlock>, first_ns: u64) -> Vec<LiveBlock> {
    live.retain(|block| block.ns < first_ns);
    live
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
