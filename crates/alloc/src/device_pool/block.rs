//! Blocks: whole driver allocations, and parts of them.

use crate::bins::Binned;
use crate::handles::Address;
use crate::neighbours::{Adjoining, Place};
pub(super) use crate::slab::{Id, List, NIL};
use crate::slab::{Link, Linked, UNLINKED};

/// All blocks of the pool.
pub(super) type Slab = crate::slab::Slab<Block>;

/// What a block is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In the caller's hands.
    Live,
    /// Free and indexed by its layout: pending until its fence is ready.
    Cached,
    /// With the thread cache: at hand, in the caller's hands, or come back.
    InThreadCache,
    /// Freed, but a graph may still use it: in no list.
    Quarantined,
}

/// What a look for free memory found.
pub(super) enum Fit {
    /// This block, taken out.
    Ready(Id),
    /// Nothing yet, but perhaps when this fence is ready.
    Pending(u64),
    /// Nothing.
    Nothing,
}

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
    /// Number of its last free among those of its arena (`blocks`).
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
    /// The background thread's tick when it was freed.
    pub tick: u32,
    pub state: State,
    /// The shard of the thread cache that has it, if one does.
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

    /// Whether it is a whole driver allocation.
    pub fn is_whole(&self) -> bool {
        self.left == NIL && self.right == NIL
    }
}

impl Linked for Block {
    type Chain = Chain;

    fn spare() -> Self {
        Block::new(0, 0, 0)
    }

    fn link(&mut self, chain: Chain) -> &mut Link {
        match chain {
            Chain::Bin => &mut self.bin,
            Chain::Age => &mut self.age,
        }
    }
}

impl Binned for Block {
    const BIN: Chain = Chain::Bin;

    fn size(&self) -> u64 {
        self.size
    }

    fn class(&mut self) -> &mut u32 {
        &mut self.class
    }
}

impl Adjoining for Block {
    #[inline]
    fn place(&mut self) -> Place<'_> {
        Place {
            address: &mut self.address,
            size: &mut self.size,
            left: &mut self.left,
            right: &mut self.right,
        }
    }

    #[inline]
    fn extent(&self) -> (Address, u64) {
        (self.address, self.size)
    }

    #[inline]
    fn right(&self) -> Id {
        self.right
    }
}
