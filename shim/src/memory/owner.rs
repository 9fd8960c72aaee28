//! The owner of an address: the memory that the program has there, if this library served it.

use gpushim_alloc::Context;
use gpushim_alloc::elastic::Found;
use gpushim_alloc::pool::LiveBlock;

use crate::memory::ipc_import::{self, Opened};
use crate::memory::registry::{self, RegisteredPool};
use crate::memory::{elastic, reservations};

/// Memory at an address, described by the request that made it.
pub enum Owner {
    /// A live block of a stream-ordered pool or in pages, and its pool.
    Pool(&'static RegisteredPool, LiveBlock),
    /// A live block that is a driver allocation: its first address and the bytes that were asked
    /// for.
    Whole(u64, u64),
    /// A segment of PyTorch's under `GPUSHIM_ELASTIC`, and its context.
    Segment(Found, Context),
    /// A block of another process that is open here.
    Import(Opened),
    /// No memory: a free block, the rest of a block, or an address that this library has reserved.
    Nobody,
    /// Memory of the driver, or none.
    Driver,
}

/// Finds the memory at an address. The padding after the requested bytes gives
/// [`Owner::Nobody`].
pub fn of(address: u64) -> Owner {
    let within = |base: u64, bytes: u64| address - base < bytes;
    if let Some(pool) = registry::owner(address) {
        return match pool.pool.find(address) {
            Some(block) if !within(block.address, block.requested) => Owner::Nobody,
            Some(block) if pool.pool.is_pages() => Owner::Pool(pool, block),
            Some(block) => Owner::Whole(block.address, block.requested),
            None => Owner::Nobody,
        };
    }
    if let Some((segment, context)) = elastic::find(address) {
        return match within(segment.base, segment.bytes) {
            true => Owner::Segment(segment, context),
            false => Owner::Nobody,
        };
    }
    match ipc_import::find(address) {
        Some(opened) => Owner::Import(opened),
        None if reservations::overlap(address, 1) => Owner::Nobody,
        None => Owner::Driver,
    }
}

impl Owner {
    /// Returns the first address of the memory, and the bytes that were asked for.
    pub fn range(&self) -> Option<(u64, u64)> {
        match self {
            Owner::Pool(_, block) => Some((block.address, block.requested)),
            Owner::Whole(base, bytes) => Some((*base, *bytes)),
            Owner::Segment(segment, _) => Some((segment.base, segment.bytes)),
            Owner::Import(opened) => Some((opened.address, opened.bytes)),
            Owner::Nobody | Owner::Driver => None,
        }
    }

    /// Returns the context that the memory belongs to or was last used in, if the driver would not
    /// know it.
    pub fn context(&self) -> Option<Context> {
        match self {
            Owner::Pool(_, block) => Some(block.context),
            Owner::Segment(_, context) => Some(*context),
            Owner::Import(opened) => Some(opened.context),
            Owner::Whole(..) | Owner::Nobody | Owner::Driver => None,
        }
    }

    /// True if the program has memory of this library there.
    pub fn is_ours(&self) -> bool {
        self.range().is_some()
    }
}
