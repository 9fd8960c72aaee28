//! PyTorch's allocator with `expandable_segments:True`: one segment for the small and one for the large
//! blocks of each stream, which grows at its end by whole pages.
//!
//! Pages that go back while blocks around them stay are counted, not placed: what is taken from the same
//! segment afterwards is taken to need them first.

use rustc_hash::FxHashMap;

use super::bytes::Bytes;
use super::heap::{Heap, Piece};
use super::requests::Request;
use super::torch::{BLOCK, LARGE_BUFFER, SMALL_BUFFER, Streams, rounded};
use super::{Allocator, DriverTime, OutOfMemory};

/// Its state.
#[derive(Debug)]
pub(super) struct Expandable {
    heap: Heap,
    device: Bytes,
    streams: Streams,
    segments: FxHashMap<u32, Segment>,
    places: Vec<Piece>,
}

/// The segment of a group.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Its first block, which keeps its number whatever becomes of it.
    first: Piece,
    /// Bytes that are not mapped now.
    hollow: u64,
}

/// Bytes of the pages that a group's segment is made of.
fn page(group: u32) -> u64 {
    if group.is_multiple_of(2) {
        SMALL_BUFFER
    } else {
        LARGE_BUFFER
    }
}

impl Expandable {
    /// On a device with so many bytes, for so many blocks.
    pub fn new(capacity: u64, blocks: u32) -> Expandable {
        Expandable {
            heap: Heap::default(),
            device: Bytes::new(capacity),
            streams: Streams::default(),
            segments: FxHashMap::default(),
            places: vec![Piece::NONE; blocks as usize],
        }
    }

    /// Free memory at the end of a group's segment, with room for a block.
    fn grow(&mut self, group: u32, bytes: u64) -> Result<Piece, OutOfMemory> {
        let page = page(group);
        let last = self
            .segments
            .get(&group)
            .map(|segment| self.heap.last_of(segment.first));
        let at_end = last.filter(|last| self.heap.is_free(*last));
        let there = at_end.map_or(0, |last| self.heap.bytes(last));
        let needed = bytes.saturating_sub(there);
        let needed = needed.checked_next_multiple_of(page).unwrap_or(needed);
        let new = self.device.map(needed, page);
        if new.is_err() && self.release_pages() {
            self.device.map(needed, page)?;
        } else {
            new?;
        }
        let piece = match last {
            Some(last) => self.heap.extend(last, needed),
            None => {
                let first = self.heap.add(group, needed);
                self.segments.insert(group, Segment { first, hollow: 0 });
                first
            }
        };
        let piece = self.heap.release(piece);
        self.heap.take(piece);
        Ok(piece)
    }

    /// Whole pages that are free go back.
    fn release_pages(&mut self) -> bool {
        let mut some = false;
        for (group, free) in self.heap.free() {
            let page = page(group);
            let Some(segment) = self.segments.get_mut(&group) else {
                continue;
            };
            // As if the block began on a page.
            let bytes = free / page * page;
            let bytes = bytes.saturating_sub(segment.hollow.min(bytes));
            if bytes > 0 {
                segment.hollow = segment.hollow.saturating_add(bytes);
                self.device.unmap(bytes, page);
                some = true;
            }
        }
        some
    }

    /// A block of a group is taken of which pages may be gone.
    fn refill(&mut self, group: u32, bytes: u64) -> Result<(), OutOfMemory> {
        let page = page(group);
        let Some(segment) = self
            .segments
            .get_mut(&group)
            .filter(|segment| segment.hollow > 0)
        else {
            return Ok(());
        };
        let bytes = bytes
            .checked_next_multiple_of(page)
            .unwrap_or(bytes)
            .min(segment.hollow);
        self.device.map(bytes, page)?;
        segment.hollow -= bytes;
        Ok(())
    }
}

impl Allocator for Expandable {
    fn allocate(&mut self, request: &Request) -> Result<(), OutOfMemory> {
        let bytes = rounded(request.bytes);
        let group = self.streams.group(request.stream, bytes);
        let piece = match self.heap.best(group, bytes) {
            Some(piece) => {
                self.refill(group, bytes)?;
                self.heap.take(piece);
                piece
            }
            None => self.grow(group, bytes)?,
        };
        if self.heap.bytes(piece).saturating_sub(bytes) >= BLOCK {
            self.heap.split(piece, bytes);
        }
        if let Some(place) = self.places.get_mut(request.block as usize) {
            *place = piece;
        }
        Ok(())
    }

    fn free(&mut self, request: &Request) {
        let place = self.places.get_mut(request.block as usize);
        if let Some(piece) = place.map(|place| std::mem::replace(place, Piece::NONE)) {
            self.heap.release(piece);
        }
    }

    fn trim(&mut self) {
        self.release_pages();
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
