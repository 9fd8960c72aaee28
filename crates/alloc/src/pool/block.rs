//! Ranges of addresses: handed out, free, or without memory behind them.

use crate::handles::{Address, Context};
pub(super) use crate::slab::{Id, NIL};
use crate::slab::{Item, Link, Linked, UNLINKED};
use std::collections::HashMap;

/// All ranges of a pool.
pub(super) type Slab = crate::slab::Slab<Block>;
/// Something for each address that a block begins at.
pub(super) type ByAddress<T> = HashMap<Address, T, Hashing>;
#[cfg(test)]
use super::tests::look_ups::Counted as Hashing;
#[cfg(not(test))]
use rustc_hash::FxBuildHasher as Hashing;

/// The queue of what is free for everybody: no stream's.
pub(super) const SHARED: u32 = 0;
/// What a range is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In the caller's hands.
    Live,
    /// Free, with memory behind it, and in a bin.
    Free,
    /// Free and kept at hand, not merged with its neighbours.
    Unmerged,
    /// Addresses without memory.
    Unmapped,
    /// Free, but its memory is in use at another address already: to be unmapped when its work is over.
    Stale,
    /// Being mapped or unmapped.
    Busy,
    /// Freed, but a graph may still use it.
    Quarantined,
    /// At hand in a thread cache, or in the hands of a caller that has it from there.
    InThreadCache,
}

/// A range of addresses.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub address: u64,
    pub size: u64,
    /// Bytes that the caller asked for.
    pub requested: u64,
    /// The fence of `queue` after which no work uses its memory.
    pub fence: u64,
    pub queue: u32,
    /// The context of the stream that it was last handed out or freed on.
    pub context: Context,
    /// Tells apart the allocations that had this address.
    pub serial: u32,
    /// The neighbours in address order.
    pub left: Id,
    pub right: Id,
    pub bin: Link,
    pub class: u32,
    /// The capture group that it was last handed out under; 0: none.
    pub group: u32,
    /// The background thread's tick when it was freed.
    pub tick: u32,
    pub state: State,
    /// In the part of the addresses that small requests share.
    pub small: bool,
    /// Handed out for no stream in particular, and live.
    pub for_all: bool,
    /// Reached from outside the process: its allocation is freed with it.
    pub exported: bool,
    /// The thread cache that it is in, if it is in one.
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
