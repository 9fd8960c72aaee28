//! What goes into the pool and comes out of it.

use crate::handles::Address;
use crate::policy::Reuse;

/// How the pool behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What makes a freed block safe to hand out again.
    pub reuse: Reuse,
    /// The most bytes to keep cached on each device.
    pub cache_max: Option<u64>,
    /// Bytes of device memory to leave free for what takes memory without asking us; `None`: one
    /// percent of the device, and at least 256 MiB.
    pub margin: Option<u64>,
    /// When a miss would take what is held beyond this percentage of the recent peak of what is
    /// allocated, the oldest free memory goes back first. Beyond 150, the default, our traces gained little
    /// (examples/device_pool_traces).
    pub share: u32,
    /// Bytes that may be held in any case.
    pub floor: u64,
    /// Whether threads keep a few blocks to themselves, so that their hits take no common lock. Not
    /// for `strict` or with `cache_max`, whatever this says.
    pub thread_cache: bool,
    /// A block serves requests that are at most one part in `slack` smaller; rounded down to a power
    /// of two.
    pub slack: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            reuse: Reuse::default(),
            cache_max: None,
            margin: None,
            share: 150,
            floor: 256 << 20,
            thread_cache: true,
            slack: 8,
        }
    }
}

/// What an address is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A live block: its base, and the bytes that were asked for.
    Live(Address, u64),
    /// Memory that the pool holds and has not handed out: to the program it is free.
    Free,
    /// Nothing of the pool's.
    Unknown,
}

/// What ended with a context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// The blocks that were handed out, by where they begin.
    pub live: Vec<Address>,
    /// Bytes that were handed out.
    pub allocated: u64,
    /// Bytes that were held.
    pub reserved: u64,
}

/// A point in a context's frees, taken before the context is synchronised.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    pub(super) arena: u64,
    pub(super) fence: u64,
}
