//! Blocks: each is a driver allocation.

use crate::handles::Address;
pub(super) use crate::slab::Id;
use crate::slab::Item;
use rustc_hash::FxHashMap;

/// All blocks of the pool.
pub(super) type Slab = crate::slab::Slab<Block>;
/// The blocks by where they begin.
pub(super) type ByAddress = FxHashMap<Address, Id>;

/// What a block is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In the caller's hands.
    Live,
    /// Free and kept by size: pending until its fence is ready.
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

/// A driver allocation.
///
/// It is handed out and taken back as a whole.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub address: Address,
    /// Bytes of the block.
    pub size: u64,
    /// Bytes that the caller asked for.
    pub requested: u64,
    /// The fence that must be ready before the block is handed out again.
    pub fence: u64,
    /// Number of its last free among those of its arena.
    pub freed: u64,
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
}

impl Block {
    /// A driver allocation that is not kept anywhere yet.
    pub fn new(address: Address, size: u64, arena: u32) -> Self {
        Block {
            address,
            size,
            requested: 0,
            fence: 0,
            freed: 0,
            class: 0,
            arena,
            group: 0,
            tick: 0,
            state: State::Cached,
            shard: 0,
            exported: false,
        }
    }
}

impl Item for Block {
    fn spare() -> Self {
        Block::new(0, 0, 0)
    }
}
