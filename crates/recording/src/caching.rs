//! Data on a framework's caching allocator that a recording has beside its events.

use std::collections::BTreeMap;

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

/// Settings of PyTorch's allocator; `None` for its defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Least size of blocks that are not split, bytes (`max_split_size_mb`).
    pub max_split: Option<u64>,
    /// Bytes by which such a block may exceed its request (`max_non_split_rounding_mb`).
    pub spare: Option<u64>,
    /// Steps from each power of two to the next, by the power in MiB (`roundup_power2_divisions`).
    pub divisions: BTreeMap<u64, u64>,
    /// Share of the limit above which memory is released (`garbage_collection_threshold`).
    pub collect_above: Option<f64>,
    /// True if segments grow in place (`expandable_segments`).
    pub is_expandable: Option<bool>,
}

impl Settings {
    /// Reads size limits and `expandable_segments` from a line `option:value,…`, the value of
    /// `PYTORCH_CUDA_ALLOC_CONF`. A snapshot has the other options as settings of their own.
    pub fn read(&mut self, line: &str) {
        for (key, value) in line.split(',').filter_map(|pair| pair.split_once(':')) {
            let mebibytes = value.trim().parse::<u64>().ok();
            let bytes = mebibytes.map(|number| number.saturating_mul(1 << 20));
            match (key.trim(), bytes) {
                ("max_split_size_mb", Some(bytes)) => self.max_split = Some(bytes),
                ("max_non_split_rounding_mb", Some(bytes)) => self.spare = Some(bytes),
                ("expandable_segments", _) => self.is_expandable = Some(value.trim() == "True"),
                _ => {}
            }
        }
    }
}

/// Data on the allocator that events do not carry. Keys of the maps are tickets of events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Caching {
    /// Settings of the allocator.
    pub settings: Settings,
    /// The use of the memory of each event that reserves memory.
    pub segments: FxHashMap<u64, Segment>,
    /// Frees of memory in use by streams, with the ticket of the event that completes the use.
    pub completed: FxHashMap<u64, u64>,
    /// Requests that failed: the free bytes of the device, if known, and the stream.
    pub refused: FxHashMap<u64, (Option<u64>, u64)>,
    /// Memory that was in use when the recording began and is no tensor.
    pub waiting: Vec<Waiting>,
}
