//! Layout `segments`: best fit inside large driver allocations, which are split and merged.
//!
//! Small requests share segments of 2 MiB, larger ones segments of 20 MiB, and what is larger
//! still gets a segment of its own in steps of 2 MiB: the sizes that PyTorch documents for its
//! allocator. Freed parts wait in order for their fence; only ready memory is merged.

use super::block::Fit;
use super::block::{Chain, Id, List, NIL, Slab, State};
use crate::bins::Bins;
use crate::fences;
use crate::handles::Address;
use crate::rules;
use crate::size_class::{self, GRANULE, PAGE};
use rustc_hash::{FxHashMap, FxHashSet};

/// Requests up to this many bytes share small segments.
const SMALL: u64 = 1 << 20;
/// How many waiting parts are looked at for one that fits alone.
const LOOK_PENDING: usize = 32;

/// A part fits tightly if it is at most one part in this many larger than the request.
const TIGHT: u64 = 8;

/// Where addresses begin, which splitting and merging keep up to date.
pub(super) type Map = FxHashMap<Address, Id>;

struct Room {
    bins: Bins,
    /// Freed parts whose fence is not known to be ready, oldest first.
    pending: List,
    pending_bytes: u64,
    /// The remainder of a split is kept apart from this many bytes.
    split: u64,
}

impl Room {
    fn new(split: u64) -> Self {
        Room {
            bins: Bins::new(),
            pending: List::EMPTY,
            pending_bytes: 0,
            split,
        }
    }

    /// The fence to wait for so that a request may fit.
    fn hope(&self, slab: &Slab, bytes: u64) -> Fit {
        if self.pending_bytes == 0 {
            return Fit::Nothing;
        }
        let mut id = self.pending.oldest;
        for _ in 0..LOOK_PENDING {
            let block = slab.at(id);
            if id == NIL {
                break;
            }
            if block.size >= bytes && !block.exported {
                return Fit::Pending(block.fence);
            }
            id = block.age.newer;
        }
        // Parts that do not fit alone may fit together, with each other or with what is free.
        if self.pending_bytes >= bytes.min(PAGE) {
            return Fit::Pending(slab.at(self.pending.newest).fence);
        }
        Fit::Nothing
    }
}

/// The free memory of one arena.
pub(super) struct Segments {
    small: Room,
    large: Room,
    /// Wholly free segments, in the order in which they became so.
    whole: List,
    /// Wholly free segments whose address left the process: to go to the driver.
    pub leaving: Vec<Id>,
}

impl Segments {
    pub fn new() -> Self {
        Segments {
            small: Room::new(GRANULE),
            large: Room::new(SMALL),
            whole: List::EMPTY,
            leaving: Vec::new(),
        }
    }

    fn room(&mut self, small: bool) -> &mut Room {
        if small {
            &mut self.small
        } else {
            &mut self.large
        }
    }

    /// Bytes of the segment to get from the driver for a request.
    pub fn growth(bytes: u64) -> u64 {
        size_class::segment_bytes(bytes, SMALL)
    }

    /// Takes a ready part, or tells what to wait for.
    ///
    /// To split what is much too large while other memory waits for its fence would take it apart
    /// for good (2.1 × what was allocated in the worst of our traces, against 1.4): unless it is
    /// to be `any` part, the fence comes first.
    pub fn take(
        &mut self,
        slab: &mut Slab,
        map: &mut Map,
        bytes: u64,
        ready: u64,
        any: bool,
    ) -> Fit {
        self.promote(slab, map, ready);
        let need = bytes.div_ceil(GRANULE).saturating_mul(GRANULE);
        let room = self.room(bytes <= SMALL);
        let Some(id) = room.bins.best(slab, need) else {
            return room.hope(slab, need);
        };
        if !any && room.pending_bytes > 0 && slab.at(id).size > need.saturating_add(need / TIGHT) {
            return Fit::Pending(slab.at(room.pending.newest).fence);
        }
        self.claim(slab, map, id, need);
        Fit::Ready(id)
    }

    /// Takes a ready part out of the free memory and gives the rest of it back.
    fn claim(&mut self, slab: &mut Slab, map: &mut Map, id: Id, need: u64) {
        self.unlist(slab, id);
        let block = slab.at_mut(id);
        block.merged = false;
        let rest = block.size.saturating_sub(need);
        let small = block.small;
        if rest < self.room(small).split {
            return;
        }
        let Some(new) = slab.cut(id, need) else {
            return;
        };
        let rest = slab.at_mut(new);
        (rest.merged, rest.group) = (true, 0);
        map.insert(rest.address, new);
        self.room(small).bins.insert(slab, new);
    }

    /// Keeps a freed part.
    pub fn insert(&mut self, slab: &mut Slab, id: Id) {
        let (small, size) = (slab.at(id).small, slab.at(id).size);
        let room = self.room(small);
        room.pending.push(slab, Chain::Age, id);
        room.pending_bytes += size;
    }

    /// Keeps a segment that has just come from the driver, and hands out of it.
    pub fn grown(&mut self, slab: &mut Slab, map: &mut Map, id: Id, bytes: u64) {
        slab.at_mut(id).small = bytes <= SMALL;
        self.list(slab, id);
        self.claim(
            slab,
            map,
            id,
            bytes.div_ceil(GRANULE).saturating_mul(GRANULE),
        );
    }

    /// Merges what has become ready.
    pub fn promote(&mut self, slab: &mut Slab, map: &mut Map, ready: u64) {
        for small in [true, false] {
            loop {
                let room = self.room(small);
                let id = room.pending.oldest;
                if id == NIL || !rules::may_use(slab.at(id).fence <= ready) {
                    break;
                }
                room.pending.unlink(slab, Chain::Age, id);
                room.pending_bytes = room.pending_bytes.saturating_sub(slab.at(id).size);
                self.merge(slab, map, id);
            }
        }
    }

    fn merge(&mut self, slab: &mut Slab, map: &mut Map, mut id: Id) {
        let left = slab.at(id).left;
        if left != NIL && slab.at(left).merged {
            self.unlist(slab, left);
            self.absorb(slab, map, left, id);
            id = left;
        }
        let right = slab.at(id).right;
        if right != NIL && slab.at(right).merged {
            self.unlist(slab, right);
            self.absorb(slab, map, id, right);
        }
        self.list(slab, id);
    }

    /// Makes `right` a part of its neighbour `left`.
    fn absorb(&mut self, slab: &mut Slab, map: &mut Map, left: Id, right: Id) {
        let gone = slab.absorb(left, right);
        map.remove(&gone.address);
        let block = slab.at_mut(left);
        block.fence = fences::later(block.fence, gone.fence);
        block.tick = block.tick.max(gone.tick);
    }

    fn list(&mut self, slab: &mut Slab, id: Id) {
        let block = slab.at_mut(id);
        block.merged = true;
        block.state = State::Cached;
        let (small, whole, exported) = (block.small, block.is_whole(), block.exported);
        if exported {
            if whole {
                self.leaving.push(id);
            }
            return;
        }
        self.room(small).bins.insert(slab, id);
        if whole {
            self.whole.push(slab, Chain::Age, id);
        }
    }

    fn unlist(&mut self, slab: &mut Slab, id: Id) {
        let block = slab.at(id);
        let (small, whole) = (block.small, block.is_whole());
        if block.exported {
            return;
        }
        self.room(small).bins.remove(slab, id);
        if whole {
            self.whole.unlink(slab, Chain::Age, id);
        }
    }

    /// The address of a part left the process: nothing of its segment is handed out again.
    pub fn export(&mut self, slab: &mut Slab, mut id: Id) {
        while slab.at(id).left != NIL {
            id = slab.at(id).left;
        }
        while id != NIL {
            if slab.at(id).merged {
                self.unlist(slab, id);
            }
            slab.at_mut(id).exported = true;
            id = slab.at(id).right;
        }
    }

    /// The segment that has been wholly free for longest.
    pub fn oldest(&self) -> Option<Id> {
        (self.whole.oldest != NIL).then_some(self.whole.oldest)
    }

    /// Takes out the segment that has been wholly free for longest.
    pub fn evict(&mut self, slab: &mut Slab) -> Option<Id> {
        let id = self.oldest()?;
        self.unlist(slab, id);
        Some(id)
    }

    /// Takes out the segments that are free but for parts that wait for a fence up to this one.
    pub fn evict_waiting(&mut self, slab: &mut Slab, map: &mut Map, upto: u64) -> Vec<Id> {
        let (mut seen, mut whole) = (FxHashSet::default(), Vec::new());
        for small in [true, false] {
            let mut id = self.room(small).pending.oldest;
            while id != NIL {
                let mut first = id;
                while seen.insert(first) && slab.at(first).left != NIL {
                    first = slab.at(first).left;
                }
                if slab.at(first).left == NIL {
                    whole.push(first);
                }
                id = slab.at(id).age.newer;
            }
        }
        whole.sort_unstable();
        whole.dedup();
        whole.retain(|first| {
            slab.from(*first).all(|(_, block)| {
                block.merged || block.state == State::Cached && block.fence <= upto
            })
        });
        for first in &whole {
            let mut part = *first;
            while part != NIL {
                if slab.at(part).merged {
                    self.unlist(slab, part);
                } else {
                    let (small, size) = (slab.at(part).small, slab.at(part).size);
                    let room = self.room(small);
                    room.pending.unlink(slab, Chain::Age, part);
                    room.pending_bytes = room.pending_bytes.saturating_sub(size);
                }
                part = slab.at(part).right;
            }
            while slab.at(*first).right != NIL {
                let right = slab.at(*first).right;
                self.absorb(slab, map, *first, right);
            }
        }
        whole
    }

    /// The last fence that a freed part waits for.
    pub fn newest_pending(&self, slab: &Slab) -> Option<u64> {
        let newest = [self.small.pending.newest, self.large.pending.newest];
        newest
            .into_iter()
            .filter(|id| *id != NIL)
            .map(|id| slab.at(id).fence)
            .max()
    }
}
