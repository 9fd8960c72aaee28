//! Types for the users of pools.

use crate::driver::Home;
use crate::handles::Context;
use crate::policy::Reuse;

/// The memory that a pool is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Pieces of physical memory, mapped into one reserved range of addresses and moved as needed.
    Pages,
    /// Driver allocations in one context, each for one block at a time.
    Whole(Home),
}

/// Settings that decide how a pool behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Memory that the pool is made of.
    pub backing: Backing,
    /// Bytes of addresses to reserve for [`Backing::Pages`]: several times the memory of the
    /// device, so that memory may move freely. They cost nothing: a reservation takes the same 2 µs
    /// from 2^38 to 2^46 bytes (measured on an H100). Half as many are requested where the driver
    /// refuses.
    pub addresses: u64,
    /// Smallest piece of memory that is mapped, in bytes; a power of two, and at least 2 MiB.
    pub page: u64,
    /// Spare memory, in thousandths of the highest bytes allocated so far. The pool gets new memory
    /// rather than move any while it holds no more than this beyond the highest. The limit of the
    /// spare memory is 16 pages, or 2 thousandths if these are more.
    pub spare: u64,
    /// Bytes of the smallest piece of memory once memory is freed regularly; at least a page.
    pub piece: u64,
    /// Maximum bytes to hold, as the pool's creator demanded; 0 for no limit.
    pub max_size: u64,
    /// True if a stream is made to wait for another when it needs memory freed there.
    pub orders: bool,
    /// True if the host waits instead, where `orders` is false.
    pub waits: bool,
    /// Choice between these for requests that are for no particular stream.
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

/// A block that is allocated now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes that were requested.
    pub requested: u64,
    /// Number that tells apart the blocks at one address.
    pub serial: u32,
    /// Context that it was allocated in.
    pub context: Context,
    /// True if it was allocated for no particular stream, as by `cudaMalloc`.
    pub for_all: bool,
}
