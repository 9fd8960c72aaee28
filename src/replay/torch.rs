//! PyTorch's own caching allocator, by its documentation and the constants that it names
//! (`c10/cuda/CUDACachingAllocator`, PyTorch 1.10 to 2.11, without options).
//!
//! What is not followed: blocks that `record_stream` holds back, private pools of graphs, and the round-up and
//! split options of `PYTORCH_CUDA_ALLOC_CONF`.

use rustc_hash::FxHashMap;

use super::bytes::Bytes;
use super::heap::{Heap, Piece};
use super::requests::{Given, GivenBlock, Request};
use super::{Allocator, DriverTime, OutOfMemory};

/// `kMinBlockSize`: sizes are multiples of it, bytes.
pub(super) const BLOCK: u64 = 512;
/// `kSmallSize`: requests up to it are small.
pub(super) const SMALL: u64 = 1 << 20;
/// `kSmallBuffer`: small blocks are cut from segments of this size.
pub(super) const SMALL_BUFFER: u64 = 2 << 20;
/// `kLargeBuffer`: requests below [`MIN_LARGE`] are cut from segments of this size.
pub(super) const LARGE_BUFFER: u64 = 20 << 20;
/// `kMinLargeAlloc`.
const MIN_LARGE: u64 = 10 << 20;
/// `kRoundLarge`: larger segments are multiples of this.
const ROUND_LARGE: u64 = 2 << 20;

/// Its state.
#[derive(Debug)]
pub(super) struct Torch {
    heap: Heap,
    device: Bytes,
    streams: Streams,
    places: Vec<Piece>,
}

/// Streams by number: a group of the heap for the small and one for the large blocks of each.
#[derive(Debug, Default)]
pub(super) struct Streams(FxHashMap<u64, u32>);

impl Streams {
    /// The group for blocks of so many bytes of a stream.
    pub fn group(&mut self, stream: Option<u64>, bytes: u64) -> u32 {
        let next = self.0.len() as u32;
        let number = *self.0.entry(stream.unwrap_or(0)).or_insert(next);
        number.saturating_mul(2) + u32::from(bytes > SMALL)
    }
}

/// Bytes of the block for a request.
pub(super) fn rounded(bytes: u64) -> u64 {
    bytes
        .max(1)
        .checked_next_multiple_of(BLOCK)
        .unwrap_or(bytes)
}

/// Bytes of the segment that is got for a block.
fn segment(bytes: u64) -> u64 {
    if bytes <= SMALL {
        SMALL_BUFFER
    } else if bytes < MIN_LARGE {
        LARGE_BUFFER
    } else {
        bytes.checked_next_multiple_of(ROUND_LARGE).unwrap_or(bytes)
    }
}

/// Whether a block is cut where this would be left: of small ones any rest, of large ones more than a small one.
fn splits(bytes: u64, rest: u64) -> bool {
    if bytes <= SMALL {
        rest >= BLOCK
    } else {
        rest > SMALL
    }
}

impl Torch {
    /// On a device with so many bytes, for so many blocks.
    pub fn new(capacity: u64, blocks: u32) -> Torch {
        Torch {
            heap: Heap::default(),
            device: Bytes::new(capacity),
            streams: Streams::default(),
            places: vec![Piece::NONE; blocks as usize],
        }
    }

    fn place(&mut self, block: u32, piece: Piece) {
        if let Some(place) = self.places.get_mut(block as usize) {
            *place = piece;
        }
    }

    fn release_cached(&mut self) -> bool {
        let dropped = self.heap.drop_free();
        dropped.iter().for_each(|bytes| self.device.release(*bytes));
        !dropped.is_empty()
    }

    /// A segment as it was found: its blocks, and between them what is free.
    fn found(&mut self, (address, bytes): (u64, u64), blocks: &[GivenBlock]) {
        // Segments of this size hold small blocks only.
        let is_small = bytes == SMALL_BUFFER;
        let stream = blocks.first().and_then(|block| block.stream);
        let group = self.streams.group(stream, if is_small { 0 } else { bytes });
        let end = address.saturating_add(bytes);
        self.device.had(bytes);
        let mut rest = self.heap.add_at(group, address, bytes);
        let mut at = address;
        for (index, block) in blocks.iter().enumerate() {
            if block.address < at || block.address >= end {
                continue;
            }
            let next = blocks
                .get(index + 1)
                .map_or(end, |next| next.address.min(end));
            let room = next.saturating_sub(block.address);
            let mut size = rounded(block.bytes).min(room);
            // What would be too little to be free belongs to the block before it.
            if !is_small && room - size <= SMALL {
                size = room;
            }
            if block.address > at {
                let used = self.heap.cut(rest, block.address - at);
                self.heap.release(rest);
                rest = used;
            }
            let after = self.heap.cut(rest, size);
            self.place(block.block, rest);
            at = block.address.saturating_add(size);
            rest = after;
            if rest == Piece::NONE {
                return;
            }
        }
        self.heap.release(rest);
    }
}

impl Allocator for Torch {
    fn begin_with(&mut self, given: &Given) -> bool {
        let mut blocks = given.blocks.clone();
        blocks.sort_unstable_by_key(|block| block.address);
        let holds = |(begin, bytes): &(u64, u64), at: u64| {
            (*begin..begin.saturating_add(*bytes)).contains(&at)
        };
        let mut segments = given.segments.clone();
        segments.sort_unstable();
        let is_inside = |block: &GivenBlock| {
            let before = segments.partition_point(|(begin, _)| *begin <= block.address);
            let last = before.checked_sub(1).and_then(|at| segments.get(at));
            last.is_some_and(|segment| holds(segment, block.address))
        };
        if segments.is_empty() || !blocks.iter().all(is_inside) {
            return false;
        }
        for &(address, bytes) in &segments {
            let end = address.saturating_add(bytes);
            let from = blocks.partition_point(|block| block.address < address);
            let to = blocks.partition_point(|block| block.address < end);
            self.found((address, bytes), blocks.get(from..to).unwrap_or_default());
        }
        true
    }

    fn allocate(&mut self, request: &Request) -> Result<(), OutOfMemory> {
        let bytes = rounded(request.bytes);
        let group = self.streams.group(request.stream, bytes);
        let piece = match self.heap.best(group, bytes) {
            Some(piece) => {
                self.heap.take(piece);
                piece
            }
            None => {
                let segment = segment(bytes);
                let new = self.device.allocate(segment);
                if new.is_err() && self.release_cached() {
                    self.device.allocate(segment)?;
                } else {
                    new?;
                }
                self.heap.add(group, segment)
            }
        };
        let rest = self.heap.bytes(piece).saturating_sub(bytes);
        if splits(bytes, rest) {
            self.heap.split(piece, bytes);
        }
        self.place(request.block, piece);
        Ok(())
    }

    fn free(&mut self, request: &Request) {
        let place = self.places.get_mut(request.block as usize);
        if let Some(piece) = place.map(|place| std::mem::replace(place, Piece::NONE)) {
            self.heap.release(piece);
        }
    }

    fn trim(&mut self) {
        self.release_cached();
    }

    fn reserved(&self) -> u64 {
        self.device.held
    }

    fn largest_free(&self) -> u64 {
        self.heap.largest_free()
    }

    fn driver_time(&self) -> DriverTime {
        self.device.time
    }
}
