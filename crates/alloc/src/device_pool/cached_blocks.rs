//! The cached blocks of an arena, by size class.
//!
//! A class keeps its free blocks in the order in which they were freed. Fences are handed out in
//! that order too, so what becomes ready is always the older part. The newest of the ready ones is
//! handed out, so that a surplus ages at the old end.

use super::block::Fit;
use super::block::{Id, Slab};
use crate::rules;
use crate::size_class::{self, CLASSES, Set};
use std::collections::VecDeque;

/// The slack, as a power of two, when the alternative is to give memory back and get other memory.
const LOOSE: u32 = 1;

/// The free blocks of one class, oldest first.
#[derive(Clone, Default)]
struct Bin {
    ready: VecDeque<Id>,
    /// With the fence that each waits for.
    pending: VecDeque<(u64, Id)>,
}

/// The cached blocks of one arena.
pub(super) struct CachedBlocks {
    /// Empty until the first free.
    bins: Vec<Bin>,
    filled: Set,
    /// Counts frees: the order of blocks of different classes.
    frees: u64,
    /// A block serves requests down to this part smaller, as a power of two.
    slack: u32,
}

impl CachedBlocks {
    pub fn new(slack: u64) -> Self {
        CachedBlocks {
            bins: Vec::new(),
            filled: Set::new(),
            frees: 0,
            slack: slack.max(1).ilog2(),
        }
    }

    /// Takes a ready block, or tells what to wait for.
    #[inline]
    pub fn take(&mut self, slab: &Slab, bytes: u64, ready: u64) -> Fit {
        self.take_within(slab, bytes, self.slack, ready)
    }

    /// Takes a ready block like [`CachedBlocks::take`], but larger blocks will do, too.
    /// That saves giving memory back to get other memory.
    pub fn take_loosely(&mut self, slab: &Slab, bytes: u64, ready: u64) -> Fit {
        self.take_within(slab, bytes, self.slack.min(LOOSE), ready)
    }

    #[inline]
    fn take_within(&mut self, slab: &Slab, bytes: u64, slack: u32, ready: u64) -> Fit {
        // Whole pages cost no more than what they hold.
        let low = size_class::floor(size_class::block_bytes(bytes));
        let high = low.max(size_class::floor(bytes.saturating_add(bytes >> slack)));
        let mut pending = None;
        let mut next = self.filled.first(low, high);
        while let Some(class) = next {
            let Some(bin) = self.bins.get_mut(class) else {
                break;
            };
            if let Some(fence) = bin.advance(ready) {
                pending = Some(pending.map_or(fence, |f: u64| f.min(fence)));
            }
            if let Some(&id) = bin.ready.back()
                && slab.at(id).size >= bytes
            {
                bin.ready.pop_back();
                if bin.is_empty() {
                    self.filled.remove(class);
                }
                return Fit::Ready(id);
            }
            next = self.filled.first(class + 1, high);
        }
        pending.map_or(Fit::Nothing, Fit::Pending)
    }

    /// Takes up to `most` more ready blocks of at least `bytes` bytes and of the class of one that
    /// was taken.
    pub fn take_alike(
        &mut self,
        slab: &mut Slab,
        like: Id,
        bytes: u64,
        most: usize,
        mut each: impl FnMut(&mut Slab, Id),
    ) {
        let class = slab.at(like).class as usize;
        let Some(bin) = self.bins.get_mut(class) else {
            return;
        };
        for _ in 0..most {
            match bin.ready.pop_back() {
                Some(id) if slab.at(id).size >= bytes => each(slab, id),
                Some(id) => {
                    bin.ready.push_back(id);
                    break;
                }
                None => break,
            }
        }
        if bin.is_empty() {
            self.filled.remove(class);
        }
    }

    /// Keeps a freed block.
    #[inline]
    pub fn insert(&mut self, slab: &mut Slab, id: Id) {
        let block = slab.at_mut(id);
        let class = size_class::floor(block.size);
        block.class = class as u32;
        let fence = block.fence;
        if let Some(bin) = self.fill(slab, class, id) {
            bin.pending.push_back((fence, id));
        }
    }

    /// Keeps a block that is ready, and was at hand for a while: as the newest of the ready ones,
    /// so that it is the first to be handed out. It counts as freed now, as what is at hand is of
    /// the sizes most asked for.
    pub fn insert_ready(&mut self, slab: &mut Slab, id: Id) {
        let class = slab.at(id).class as usize;
        if let Some(bin) = self.fill(slab, class, id) {
            bin.ready.push_back(id);
        }
    }

    /// The bin that is about to get a block.
    #[inline]
    fn fill(&mut self, slab: &mut Slab, class: usize, id: Id) -> Option<&mut Bin> {
        if self.bins.is_empty() {
            self.bins.resize(CLASSES, Bin::default());
        }
        self.frees += 1;
        slab.at_mut(id).freed = self.frees;
        self.filled.insert(class);
        self.bins.get_mut(class)
    }

    /// The class with the block that was freed first, and the block.
    fn first(&self, slab: &Slab) -> Option<(usize, Id)> {
        let mut first: Option<(u64, usize, Id)> = None;
        let mut next = self.filled.first(0, CLASSES - 1);
        while let Some(class) = next {
            if let Some(id) = self.bins.get(class).and_then(Bin::oldest) {
                let freed = slab.at(id).freed;
                if first.is_none_or(|(least, ..)| freed < least) {
                    first = Some((freed, class, id));
                }
            }
            next = self.filled.first(class + 1, CLASSES - 1);
        }
        first.map(|(_, class, id)| (class, id))
    }

    /// The block that was freed first.
    pub fn oldest(&self, slab: &Slab) -> Option<Id> {
        self.first(slab).map(|(_, id)| id)
    }

    /// Takes out the block that was freed first.
    pub fn evict(&mut self, slab: &Slab) -> Option<Id> {
        let (class, id) = self.first(slab)?;
        let bin = self.bins.get_mut(class)?;
        if bin.ready.pop_front().is_none() {
            bin.pending.pop_front();
        }
        if bin.is_empty() {
            // Frees the queues' capacity, too: the size may never be asked for again.
            *bin = Bin::default();
            self.filled.remove(class);
        }
        Some(id)
    }
}

impl Bin {
    /// Moves over what has become ready. Returns the first fence that has not.
    #[inline]
    fn advance(&mut self, ready: u64) -> Option<u64> {
        loop {
            let &(fence, id) = self.pending.front()?;
            if !rules::may_use(fence <= ready) {
                return Some(fence);
            }
            self.pending.pop_front();
            self.ready.push_back(id);
        }
    }

    fn oldest(&self) -> Option<Id> {
        let pending = self.pending.front().map(|&(_, id)| id);
        self.ready.front().copied().or(pending)
    }

    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.pending.is_empty()
    }
}
