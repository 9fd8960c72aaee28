//! Blocks: ranges of addresses that are allocated, free, or without memory.

use crate::handles::{Address, Context};
pub(super) use crate::slab::{Id, NIL};
use crate::slab::{Item, Link, Linked, UNLINKED};
use std::collections::HashMap;

pub(super) type Slab = crate::slab::Slab<Block>;
/// Values by the address of a block.
pub(super) type ByAddress<T> = HashMap<Address, T, Hashing>;
#[cfg(test)]
use super::tests::look_ups::Counted as Hashing;
#[cfg(not(test))]
use rustc_hash::FxBuildHasher as Hashing;

/// Number of the queue of blocks that are free for all streams. It serves no stream.
pub(super) const SHARED: u32 = 0;
/// State of a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Allocated, and held by a caller.
    Live,
    /// Free, with memory behind it, and in a bin.
    Free,
    /// Free and cached by its exact size, not merged with adjacent blocks.
    Unmerged,
    /// Addresses without memory.
    Unmapped,
    /// Free, but its memory is in use at another address already. It is unmapped when its work is
    /// complete.
    Stale,
    /// Being mapped, unmapped or waited for.
    Busy,
    /// Freed, but a graph may still use it.
    Quarantined,
    /// Free in a thread cache, or allocated from one.
    InThreadCache,
}

#[derive(Clone, Debug)]
pub(super) struct Block {
    pub address: u64,
    pub size: u64,
    /// Bytes that the caller asked for.
    pub requested: u64,
    /// The fence of `queue` after which no work uses its memory.
    pub fence: u64,
    pub queue: u32,
    /// Context of the stream that it was last allocated or freed on.
    pub context: Context,
    /// Number that tells apart the allocations at one address.
    pub serial: u32,
    /// Adjacent blocks in address order.
    pub left: Id,
    pub right: Id,
    pub bin: Link,
    pub class: u32,
    /// Set of captures that it was last allocated under; 0 for none.
    pub group: u32,
    /// Tick of the background thread at which it was freed.
    pub tick: u32,
    pub state: State,
    /// True in the part of the addresses that small requests share.
    pub small: bool,
    /// True while it is live and allocated for no particular stream.
    pub for_all: bool,
    /// True if it was exported from the process: its allocation is freed with it.
    pub exported: bool,
    /// Number of the thread cache that it is in, if it is in one.
    pub part: u8,
}

impl Block {
    pub fn new(address: u64, size: u64, state: State) -> Self {
        Block {
            address,
            size,
            requested: 0,
            fence: 0,
            queue: SHARED,
            context: Context(0),
            serial: 0,
            left: NIL,
            right: NIL,
            bin: UNLINKED,
            class: 0,
            group: 0,
            tick: 0,
            state,
            small: false,
            for_all: false,
            exported: false,
            part: 0,
        }
    }

    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }
}

impl Item for Block {
    fn spare() -> Self {
        Block::new(0, 0, State::Busy)
    }
}

impl Linked for Block {
    type Chain = ();

    #[inline]
    fn link(&mut self, (): ()) -> &mut Link {
        &mut self.bin
    }
}
