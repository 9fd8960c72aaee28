//! Placement `blocks` and `bins`: whole driver allocations, by size class.
//!
//! A class keeps its free blocks in the order in which they were freed. Fences are handed out in
//! that order too, so the ready ones are the older part of the list; the newest of them is handed
//! out, so that a surplus ages at the old end.

use super::block::{Chain, Id, List, NIL, Slab};
use super::class::{self, CLASSES, GRANULE, Set};
use super::placement::Found;

/// The slack, as a power of two, when the alternative is to give memory back and get other memory.
const LOOSE: u32 = 1;

#[derive(Clone, Copy)]
struct Bin {
    list: List,
    /// The newest block known to be ready: it and the older ones are.
    ready: Id,
}

/// The free blocks of one arena.
pub(super) struct Blocks {
    /// Empty until the first free.
    bins: Vec<Bin>,
    filled: Set,
    /// All of them, in the order in which they were freed.
    age: List,
    /// A block serves requests down to this part smaller, as a power of two; `None`: classes are
    /// powers of two and serve themselves only.
    slack: Option<u32>,
}

impl Blocks {
    pub fn new(slack: Option<u64>) -> Self {
        Blocks {
            bins: Vec::new(),
            filled: Set::new(),
            age: List::EMPTY,
            slack: slack.map(|part| part.max(1).ilog2()),
        }
    }

    /// Bytes of the block to get from the driver for a request.
    pub fn growth(&self, bytes: u64) -> u64 {
        match self.slack {
            Some(_) => class::block_bytes(bytes),
            None => bytes
                .max(GRANULE)
                .checked_next_power_of_two()
                .unwrap_or(bytes),
        }
    }

    /// The least for which the driver can be asked for the request.
    pub fn least(&self, bytes: u64) -> u64 {
        match self.slack {
            Some(_) => class::page_bytes(bytes),
            None => self.growth(bytes),
        }
    }

    /// Takes a ready block, or tells what to wait for.
    #[inline]
    pub fn take(&mut self, slab: &mut Slab, bytes: u64, ready: u64) -> Found {
        self.take_within(slab, bytes, self.slack, ready)
    }

    /// The same, but larger blocks will do too: it saves giving memory back to get other memory.
    pub fn take_loosely(&mut self, slab: &mut Slab, bytes: u64, ready: u64) -> Found {
        self.take_within(slab, bytes, self.slack.map(|slack| slack.min(LOOSE)), ready)
    }

    #[inline]
    fn take_within(
        &mut self,
        slab: &mut Slab,
        bytes: u64,
        slack: Option<u32>,
        ready: u64,
    ) -> Found {
        let (low, high) = match slack {
            Some(slack) => {
                // Whole pages cost no more than what they hold.
                let low = class::floor(class::block_bytes(bytes));
                let high = class::floor(bytes.saturating_add(bytes >> slack));
                (low, low.max(high))
            }
            None => {
                let class = class::floor(self.growth(bytes));
                (class, class)
            }
        };
        let mut pending = None;
        let mut next = self.filled.first(low, high);
        while let Some(class) = next {
            let Some(bin) = self.bins.get_mut(class) else {
                break;
            };
            if let Some(fence) = bin.advance(slab, ready) {
                pending = Some(pending.map_or(fence, |f: u64| f.min(fence)));
            }
            if bin.ready != NIL && slab.at(bin.ready).size >= bytes {
                let id = bin.ready;
                self.remove(slab, id);
                return Found::Ready(id);
            }
            next = self.filled.first(class + 1, high);
        }
        pending.map_or(Found::Nothing, Found::Pending)
    }

    /// Keeps a freed block.
    #[inline]
    pub fn insert(&mut self, slab: &mut Slab, id: Id) {
        let block = slab.at_mut(id);
        let class = class::floor(block.size);
        block.class = class as u32;
        if self.bins.is_empty() {
            self.bins.resize(
                CLASSES,
                Bin {
                    list: List::EMPTY,
                    ready: NIL,
                },
            );
        }
        if let Some(bin) = self.bins.get_mut(class) {
            bin.list.push(slab, Chain::Bin, id);
            self.filled.insert(class);
            self.age.push(slab, Chain::Age, id);
        }
    }

    /// Keeps a block that is ready, and was at hand for a while: as the newest of the ready ones,
    /// so that it is the first to be handed out. It counts as freed now, as what is at hand is of
    /// the sizes most asked for.
    pub fn insert_ready(&mut self, slab: &mut Slab, id: Id) {
        let class = slab.at(id).class as usize;
        if let Some(bin) = self.bins.get_mut(class) {
            // What follows the mark may be ready too by now: then it is older all the same.
            bin.list.insert_after(slab, Chain::Bin, bin.ready, id);
            bin.ready = id;
            self.filled.insert(class);
            self.age.push(slab, Chain::Age, id);
        }
    }

    #[inline]
    fn remove(&mut self, slab: &mut Slab, id: Id) {
        let class = slab.at(id).class as usize;
        if let Some(bin) = self.bins.get_mut(class) {
            if bin.ready == id {
                bin.ready = slab.at(id).bin.older;
            }
            bin.list.unlink(slab, Chain::Bin, id);
            if bin.list.is_empty() {
                self.filled.remove(class);
            }
            self.age.unlink(slab, Chain::Age, id);
        }
    }

    /// The block that was freed first.
    pub fn oldest(&self) -> Option<Id> {
        (self.age.oldest != NIL).then_some(self.age.oldest)
    }

    /// Takes out the block that was freed first.
    pub fn evict(&mut self, slab: &mut Slab) -> Option<Id> {
        let id = self.oldest()?;
        self.remove(slab, id);
        Some(id)
    }
}

impl Bin {
    /// Moves the mark over what has become ready. Returns the first fence that has not.
    #[inline]
    fn advance(&mut self, slab: &Slab, ready: u64) -> Option<u64> {
        if slab.at(self.list.newest).fence <= ready {
            self.ready = self.list.newest;
            return None;
        }
        loop {
            let next = if self.ready == NIL {
                self.list.oldest
            } else {
                slab.at(self.ready).bin.newer
            };
            let fence = slab.at(next).fence;
            if fence > ready || next == NIL {
                return Some(fence);
            }
            self.ready = next;
        }
    }
}
