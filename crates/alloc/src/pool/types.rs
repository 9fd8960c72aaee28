//! What goes into a pool and comes out of it.

use crate::driver::Home;
use crate::handles::Context;
use crate::policy::Reuse;

/// The memory that a pool is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Pieces of physical memory, mapped into one reserved range of addresses and moved where they are needed.
    Pages,
    /// Driver allocations in one context, each for one block at a time.
    Whole(Home),
}

/// How a pool behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The memory that it is made of.
    pub backing: Backing,
    /// Bytes of addresses to reserve for [`Backing::Pages`], several times what the device can hold, so
    /// that memory may move freely. They cost nothing: reserving takes the same 2 µs from 2^38 to 2^46 bytes
    /// (measured on an H100). Half of it is asked for where the driver refuses.
    pub addresses: u64,
    /// The smallest piece of memory that is mapped, bytes; a power of two, and at least 2 MiB.
    pub page: u64,
    /// New memory is got rather than moved while what is held stays below the highest allocated so far, and this many
    /// parts in a thousand more, but no more than 16 pages or two parts in a thousand.
    pub spare: u64,
    /// Bytes of the smallest piece of memory once the pool has seen memory come and go; at least a page.
    pub piece: u64,
    /// The most bytes to hold, as the pool's creator demanded; 0: no limit.
    pub max_size: u64,
    /// Whether a stream is made to wait for another whose freed memory it needs.
    pub orders: bool,
    /// If it is not: whether the host waits instead.
    pub waits: bool,
    /// The same for requests that are for no stream in particular.
    pub reuse: Reuse,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            backing: Backing::Pages,
            addresses: 1 << 41,
            page: 2 << 20,
            spare: 25,
            piece: 2 << 20,
            max_size: 0,
            orders: true,
            waits: false,
            reuse: Reuse::Order,
        }
    }
}

/// A block in the caller's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Where it begins.
    pub address: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Tells apart the blocks that had this address.
    pub serial: u32,
    /// The context that it was allocated in.
    pub context: Context,
    /// Whether it was handed out for no stream in particular, as `cudaMalloc` does.
    pub for_all: bool,
}
