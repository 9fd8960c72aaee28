//! The two pools of RMM, by its documentation: `pool_memory_resource`, which doubles, and
//! `arena_memory_resource`, which has an arena for each stream.
//!
//! Both usually take half of the device at once. To be compared with the others they begin with nothing
//! here: the pool grows from the first request on, and of the arenas' memory as much counts as they ever
//! reached into.

use rustc_hash::FxHashMap;

use super::bytes::Bytes;
use super::heap::{Heap, Piece};
use super::requests::Request;
use super::{Allocator, DriverTime, OutOfMemory};

/// Sizes are multiples of it, bytes (`CUDA_ALLOCATION_ALIGNMENT`).
const BLOCK: u64 = 256;
/// The least that an arena takes at a time (`superblock::minimum_size`).
const SUPERBLOCK: u64 = 1 << 20;

fn rounded(bytes: u64) -> u64 {
    bytes
        .max(1)
        .checked_next_multiple_of(BLOCK)
        .unwrap_or(bytes)
}

/// `pool_memory_resource`: best fit over what a stream freed, then over what others did; doubles.
#[derive(Debug)]
pub(super) struct Pool {
    heap: Heap,
    device: Bytes,
    places: Vec<Piece>,
}

impl Pool {
    /// On a device with so many bytes, for so many blocks.
    pub fn new(capacity: u64, blocks: u32) -> Pool {
        Pool {
            heap: Heap::default(),
            device: Bytes::new(capacity),
            places: vec![Piece::NONE; blocks as usize],
        }
    }

    fn grow(&mut self, bytes: u64) -> Result<Piece, OutOfMemory> {
        let mut more = self.device.held.max(bytes);
        while self.device.allocate(more).is_err() {
            if more == bytes {
                return Err(OutOfMemory);
            }
            more = (more / 2).max(bytes);
        }
        Ok(self.heap.add(0, more))
    }
}

impl Allocator for Pool {
    fn allocate(&mut self, request: &Request) -> Result<(), OutOfMemory> {
        let bytes = rounded(request.bytes);
        // Streams wait for each other before the pool grows: what one freed is another's, too.
        let piece = match self.heap.best(0, bytes) {
            Some(piece) => {
                self.heap.take(piece);
                piece
            }
            None => self.grow(bytes)?,
        };
        self.heap.split(piece, bytes);
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
        // It gives nothing back.
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

/// `arena_memory_resource`: first fit in the superblocks of a stream's arena, which come from one range of
/// addresses and return to it when they are empty.
#[derive(Debug)]
pub(super) struct Arena {
    /// The superblocks, each the region of its arena.
    heap: Heap,
    /// The range that they are cut from.
    global: Heap,
    range: Option<Piece>,
    arenas: FxHashMap<u64, u32>,
    /// The superblock, in the range, of a region's first block.
    superblocks: FxHashMap<Piece, Piece>,
    device: Bytes,
    places: Vec<Piece>,
}

impl Arena {
    /// On a device with so many bytes, for so many blocks.
    pub fn new(capacity: u64, blocks: u32) -> Arena {
        Arena {
            heap: Heap::default(),
            global: Heap::default(),
            range: None,
            arenas: FxHashMap::default(),
            superblocks: FxHashMap::default(),
            device: Bytes::new(capacity),
            places: vec![Piece::NONE; blocks as usize],
        }
    }

    /// A superblock for an arena, with room for a block.
    fn superblock(&mut self, arena: u32, bytes: u64) -> Result<Piece, OutOfMemory> {
        let bytes = bytes
            .max(SUPERBLOCK)
            .checked_next_multiple_of(SUPERBLOCK)
            .unwrap_or(bytes);
        let found = match self.global.first(0, bytes) {
            Some(found) => {
                self.global.take(found);
                found
            }
            None => self.reach(bytes)?,
        };
        self.global.split(found, bytes);
        let region = self.heap.add(arena, bytes);
        self.superblocks.insert(region, found);
        Ok(region)
    }

    /// Reaches further into the range, for so many bytes together.
    fn reach(&mut self, bytes: u64) -> Result<Piece, OutOfMemory> {
        let Some(range) = self.range else {
            self.device.allocate(bytes)?;
            let range = self.global.add(0, bytes);
            self.range = Some(range);
            return Ok(range);
        };
        let last = self.global.last_of(range);
        let there = if self.global.is_free(last) {
            self.global.bytes(last)
        } else {
            0
        };
        let more = bytes.saturating_sub(there);
        self.device.allocate(more)?;
        let new = self.global.extend(last, more);
        let whole = self.global.release(new);
        self.global.take(whole);
        Ok(whole)
    }
}

impl Allocator for Arena {
    fn allocate(&mut self, request: &Request) -> Result<(), OutOfMemory> {
        let bytes = rounded(request.bytes);
        let next = self.arenas.len() as u32;
        let arena = *self
            .arenas
            .entry(request.stream.unwrap_or(0))
            .or_insert(next);
        let piece = match self.heap.first(arena, bytes) {
            Some(piece) => {
                self.heap.take(piece);
                piece
            }
            None => self.superblock(arena, bytes)?,
        };
        self.heap.split(piece, bytes);
        if let Some(place) = self.places.get_mut(request.block as usize) {
            *place = piece;
        }
        Ok(())
    }

    fn free(&mut self, request: &Request) {
        let place = self.places.get_mut(request.block as usize);
        let Some(piece) = place.map(|place| std::mem::replace(place, Piece::NONE)) else {
            return;
        };
        let whole = self.heap.release(piece);
        if !self.heap.is_region(whole) {
            return;
        }
        if let Some(superblock) = self.superblocks.remove(&whole) {
            self.heap.drop_region(whole);
            self.global.release(superblock);
        }
    }

    fn trim(&mut self) {
        // It gives nothing back.
    }

    fn reserved(&self) -> u64 {
        self.device.held
    }

    fn largest_free(&self) -> u64 {
        self.heap.largest_free().max(self.global.largest_free())
    }

    fn driver_time(&self) -> DriverTime {
        self.device.time
    }
}
