//! Data on a framework's caching allocator that a recording has beside its events.

use rustc_hash::FxHashMap;

/// Memory that the allocator took from the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The stream that it serves.
    pub stream: u64,
    /// The pool that it belongs to: zeros for the default pool, else the pool of a graph or of the
    /// program.
    pub pool: (u64, u64),
    /// True if it serves small blocks, if that is known.
    pub is_small: Option<bool>,
    /// True if it is part of a range of addresses that grows.
    pub is_expandable: bool,
}

/// A block that the program had freed before the recording began, while streams still used it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Ordinal of the block's device.
    pub device: u8,
    /// Address of its first byte.
    pub address: u64,
    /// Number of bytes requested.
    pub bytes: u64,
    /// The stream that uses it.
    pub stream: u64,
    /// Ticket of the event after which its memory can be used again.
    pub until: u64,
}

/// Facts about the allocator that events do not carry. Keys of the maps are tickets of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caching {
    /// The use of the memory of each event that reserves memory.
    pub segments: FxHashMap<u64, Segment>,
    /// Frees of memory in use by streams, with the ticket of the event that completes the use.
    pub completed: FxHashMap<u64, u64>,
    /// Requests that failed: the free bytes of the device, if known, and the stream.
    pub refused: FxHashMap<u64, (Option<u64>, u64)>,
    /// Memory that was in use when the recording began and is no tensor.
    pub waiting: Vec<Waiting>,
}
