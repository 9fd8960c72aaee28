//! Blocks, where they are kept, and the lists they hang in.
//!
//! Everything is an index into one [`Slab`], so a hit allocates nothing and the lists need no
//! `unsafe`. An index that is [`NIL`] reads and writes a spare block: no list operation can fail.

use super::device::Address;

/// The index of a block.
pub(super) type Id = u32;

/// No block.
pub(super) const NIL: Id = Id::MAX;

/// What a block is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In the caller's hands.
    Live,
    /// Free and indexed by its placement: pending until its fence is ready.
    Cached,
    /// With the front: at hand, in the caller's hands, or come back.
    Lent,
    /// Freed, but a graph may still use it: in no list.
    Quarantined,
}

/// The neighbours of a block in one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub older: Id,
    pub newer: Id,
}

const UNLINKED: Link = Link {
    older: NIL,
    newer: NIL,
};

/// Which of its two lists a block is linked in.
#[derive(Clone, Copy)]
pub(super) enum Chain {
    /// Blocks of one size class.
    Bin,
    /// Blocks in the order in which they were freed.
    Age,
}

/// A piece of device memory: a whole driver allocation, or a part of one.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub address: Address,
    /// Bytes of the block.
    pub size: u64,
    /// Bytes that the caller asked for.
    pub requested: u64,
    /// The fence that must be ready before the block is handed out again.
    pub fence: u64,
    /// Number of its last free among those of its arena (`blocks`, `bins`).
    pub freed: u64,
    /// Its neighbours in the lists of `segments`.
    pub bin: Link,
    pub age: Link,
    /// The neighbours in address order within one driver allocation.
    pub left: Id,
    pub right: Id,
    pub class: u32,
    /// Index of the arena.
    pub arena: u32,
    /// The capture group that it was last handed out under; 0: none.
    pub group: u32,
    /// The housekeeper's tick when it was freed.
    pub tick: u32,
    pub state: State,
    /// The shard of the front that has it, while it is lent.
    pub shard: u16,
    /// The address left the process: the block is never handed out again.
    pub exported: bool,
    /// Part of a segment for small requests.
    pub small: bool,
    /// Ready and merged with its neighbours (`segments` only).
    pub merged: bool,
}

impl Block {
    /// A whole driver allocation, not in any list.
    pub fn new(address: Address, size: u64, arena: u32) -> Self {
        Block {
            address,
            size,
            requested: 0,
            fence: 0,
            freed: 0,
            bin: UNLINKED,
            age: UNLINKED,
            left: NIL,
            right: NIL,
            class: 0,
            arena,
            group: 0,
            tick: 0,
            state: State::Cached,
            shard: 0,
            exported: false,
            small: false,
            merged: false,
        }
    }

    fn link(&mut self, chain: Chain) -> &mut Link {
        match chain {
            Chain::Bin => &mut self.bin,
            Chain::Age => &mut self.age,
        }
    }

    /// Whether it is a whole driver allocation.
    pub fn is_whole(&self) -> bool {
        self.left == NIL && self.right == NIL
    }
}

/// All blocks of the pool.
pub(super) struct Slab {
    blocks: Vec<Block>,
    vacant: Vec<Id>,
    spare: Block,
}

impl Slab {
    pub fn new() -> Self {
        Slab {
            blocks: Vec::new(),
            vacant: Vec::new(),
            spare: Block::new(0, 0, 0),
        }
    }

    #[inline]
    pub fn at(&self, id: Id) -> &Block {
        self.blocks.get(id as usize).unwrap_or(&self.spare)
    }

    #[inline]
    pub fn at_mut(&mut self, id: Id) -> &mut Block {
        match self.blocks.get_mut(id as usize) {
            Some(block) => block,
            None => &mut self.spare,
        }
    }

    /// `None` when four billion blocks exist.
    pub fn insert(&mut self, block: Block) -> Option<Id> {
        if let Some(id) = self.vacant.pop() {
            *self.at_mut(id) = block;
            return Some(id);
        }
        let id = Id::try_from(self.blocks.len())
            .ok()
            .filter(|id| *id != NIL)?;
        self.blocks.push(block);
        Some(id)
    }

    pub fn remove(&mut self, id: Id) {
        self.vacant.push(id);
    }
}

/// A list of blocks, oldest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
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
    pub fn push(&mut self, slab: &mut Slab, chain: Chain, id: Id) {
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
    pub fn unlink(&mut self, slab: &mut Slab, chain: Chain, id: Id) {
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
