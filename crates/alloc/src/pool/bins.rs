//! Free memory by size: a list for each size class, and best fit over them.

use super::block::{Id, NIL, Slab};
use crate::size_class::{self, CLASSES, Set};
use crate::slab::List;

/// Maximum number of blocks of the lowest class that are compared. Their sizes differ by 1/128 at
/// most.
const LOOK: usize = 8;

/// Free blocks in lists by size class.
pub(super) struct Bins {
    lists: Vec<List>,
    filled: Set,
}

impl Bins {
    pub fn new() -> Self {
        Bins {
            lists: Vec::new(),
            filled: Set::new(),
        }
    }

    /// True if there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.filled.last().is_none()
    }

    #[inline]
    pub fn insert(&mut self, slab: &mut Slab, id: Id) {
        let block = slab.at_mut(id);
        let class = size_class::floor(block.size);
        block.class = class as u32;
        if self.lists.is_empty() {
            self.lists.resize(CLASSES, List::EMPTY);
        }
        if let Some(list) = self.lists.get_mut(class) {
            list.push(slab, (), id);
            self.filled.insert(class);
        }
    }

    #[inline]
    pub fn remove(&mut self, slab: &mut Slab, id: Id) {
        let class = slab.at(id).class as usize;
        if let Some(list) = self.lists.get_mut(class) {
            list.unlink(slab, (), id);
            if list.is_empty() {
                self.filled.remove(class);
            }
        }
    }

    /// Returns the smallest block that fits, as far as the classes and [`LOOK`] comparisons tell.
    #[inline]
    pub fn best(&self, slab: &Slab, bytes: u64) -> Option<Id> {
        let low = size_class::floor(bytes);
        let mut best = None;
        if self.filled.first(low, low).is_some() {
            let mut id = self.lists.get(low)?.newest;
            for _ in 0..LOOK {
                if id == NIL {
                    break;
                }
                let block = slab.at(id);
                let size = block.size;
                if size >= bytes && best.is_none_or(|(least, _)| size < least) {
                    best = Some((size, id));
                }
                id = block.bin.older;
            }
        }
        if let Some((_, id)) = best {
            return Some(id);
        }
        let class = self.filled.first(low + 1, CLASSES - 1)?;
        self.lists.get(class).map(|list| list.newest)
    }

    /// Bytes of the largest block; 0 if there is none.
    pub fn largest(&self, slab: &Slab) -> u64 {
        let highest = self.filled.last().and_then(|class| self.lists.get(class));
        let mut id = highest.map_or(NIL, |list| list.newest);
        let mut largest = 0;
        while id != NIL {
            let block = slab.at(id);
            largest = block.size.max(largest);
            id = block.bin.older;
        }
        largest
    }

    /// All blocks of a class and the classes above.
    pub fn at_least(&self, slab: &Slab, class: usize) -> Vec<Id> {
        let mut found = Vec::new();
        let mut class = class;
        while let Some(next) = self.filled.first(class, CLASSES - 1) {
            let mut id = self.lists.get(next).map_or(NIL, |list| list.newest);
            while id != NIL {
                found.push(id);
                id = slab.at(id).bin.older;
            }
            class = next + 1;
        }
        found
    }
}
