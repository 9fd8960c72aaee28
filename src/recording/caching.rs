//! Data on a framework's caching allocator that a recording has beside its events.

use rustc_hash::FxHashMap;

/// Memory that the allocator took from the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The stream that it serves.
    pub stream: u64,
    /// The pool that it belongs to: zeros for the default pool, else the pool of a graph or of the program.
    pub pool: (u64, u64),
    /// Whether it serves small blocks, where that is known.
    pub is_small: Option<bool>,
    /// Whether it is part of a range of addresses that grows.
    pub is_expandable: bool,
}

/// A block that the program had dropped before the recording began, while streams still used it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its device.
    pub device: u8,
    /// Where it begins.
    pub address: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Its stream.
    pub stream: u64,
    /// From the event with this ticket on its memory can be used again.
    pub until: u64,
}

/// What the allocator left, by the tickets of the events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caching {
    /// The use of the memory of each event that reserves memory.
    pub segments: FxHashMap<u64, Segment>,
    /// Frees whose memory streams still used: it can be used again from the event with the second ticket on.
    pub completed: FxHashMap<u64, u64>,
    /// Requests that could not be met: the bytes that the device had free, if that is known, and the stream.
    pub refused: FxHashMap<u64, (Option<u64>, u64)>,
    /// Memory that was in use when the recording began and is no tensor.
    pub waiting: Vec<Waiting>,
}
