//! A slab with intrusive lists.
//!
//! Every reference is an index into one [`Slab`], so an allocation from the cache allocates no host
//! memory and the lists need no `unsafe`. An index of [`NIL`] reads and writes a spare item: no
//! list operation can fail.

/// Index of an item in a slab.
pub(crate) type Id = u32;

/// Index that stands for no item.
pub(crate) const NIL: Id = Id::MAX;

/// Adjacent items of an item in one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub older: Id,
    pub newer: Id,
}

/// Link of an item in no list.
pub(crate) const UNLINKED: Link = Link {
    older: NIL,
    newer: NIL,
};

/// An item that a [`Slab`] can hold.
pub(crate) trait Item {
    /// Returns an item that stands for none.
    fn spare() -> Self;
}

/// An item that can be in lists.
pub(crate) trait Linked: Item {
    /// Names of the lists that an item can be in.
    type Chain: Copy;

    /// Returns the item's place in a list.
    fn link(&mut self, chain: Self::Chain) -> &mut Link;
}

/// Items of one owner, by index.
pub(crate) struct Slab<T> {
    items: Vec<T>,
    vacant: Vec<Id>,
    spare: T,
}

impl<T: Item> Slab<T> {
    pub fn new() -> Self {
        Slab {
            items: Vec::new(),
            vacant: Vec::new(),
            spare: T::spare(),
        }
    }

    #[inline]
    pub fn at(&self, id: Id) -> &T {
        self.items.get(id as usize).unwrap_or(&self.spare)
    }

    #[inline]
    pub fn at_mut(&mut self, id: Id) -> &mut T {
        match self.items.get_mut(id as usize) {
            Some(item) => item,
            None => &mut self.spare,
        }
    }

    /// Inserts an item. `None` when four billion items exist.
    pub fn insert(&mut self, item: T) -> Option<Id> {
        if let Some(id) = self.vacant.pop() {
            *self.at_mut(id) = item;
            return Some(id);
        }
        let id = Id::try_from(self.items.len())
            .ok()
            .filter(|id| *id != NIL)?;
        self.items.push(item);
        Some(id)
    }

    /// All items, also removed items whose place was not reused.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    pub fn remove(&mut self, id: Id) {
        self.vacant.push(id);
    }
}

/// A list of items, oldest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub oldest: Id,
    pub newest: Id,
}

impl List {
    pub const EMPTY: List = List {
        oldest: NIL,
        newest: NIL,
    };

    pub fn is_empty(self) -> bool {
        self.oldest == NIL
    }

    #[inline]
    pub fn push<T: Linked>(&mut self, slab: &mut Slab<T>, chain: T::Chain, id: Id) {
        *slab.at_mut(id).link(chain) = Link {
            older: self.newest,
            newer: NIL,
        };
        if self.newest == NIL {
            self.oldest = id;
        } else {
            slab.at_mut(self.newest).link(chain).newer = id;
        }
        self.newest = id;
    }

    #[inline]
    pub fn unlink<T: Linked>(&mut self, slab: &mut Slab<T>, chain: T::Chain, id: Id) {
        let link = slab.at_mut(id).link(chain);
        let Link { older, newer } = *link;
        *link = UNLINKED;
        if older == NIL {
            self.oldest = newer;
        } else {
            slab.at_mut(older).link(chain).newer = newer;
        }
        if newer == NIL {
            self.newest = older;
        } else {
            slab.at_mut(newer).link(chain).older = older;
        }
    }
}
