//! What caching allocators that are not ours have in common: blocks cut from memory of the driver, found again by
//! some rule, and merged when they come back.

use super::allocator::{Allocator, DriverTime, OutOfMemory};
use super::bytes::Bytes;
use super::heap::{Heap, Piece};
use crate::requests::{InitialState, Request};

/// Sizes as multiples of a unit, bytes.
pub(super) fn multiple(bytes: u64, of: u64) -> u64 {
    bytes.max(1).checked_next_multiple_of(of).unwrap_or(bytes)
}

/// What an allocator holds.
#[derive(Debug)]
pub(super) struct Memory {
    pub heap: Heap,
    pub device: Bytes,
    /// Where each block is, by its number.
    places: Vec<Piece>,
}

impl Memory {
    /// A block is in this piece.
    pub fn place(&mut self, block: u32, piece: Piece) {
        if let Some(place) = self.places.get_mut(block as usize) {
            *place = piece;
        }
    }
}

/// The parts in which these allocators differ.
pub(super) trait Rules {
    /// The heap that blocks are found in.
    fn heap(&self) -> Heap {
        Heap::default()
    }

    /// Bytes of the block for a request of `bytes` bytes.
    fn rounded(&self, bytes: u64) -> u64;

    /// The group whose blocks serve a request for a block of `bytes` bytes.
    fn group(&mut self, _request: &Request, _bytes: u64) -> u32 {
        0
    }

    /// The free block that is taken.
    fn find(&mut self, memory: &Memory, group: u32, bytes: u64) -> Option<Piece> {
        memory.heap.best(group, bytes)
    }

    /// Gets memory for a block from the driver. Returns it in hand.
    fn grow(&mut self, memory: &mut Memory, group: u32, bytes: u64) -> Result<Piece, OutOfMemory>;

    /// Whether a block is cut where this would be left.
    fn splits(&self, _bytes: u64, _rest: u64) -> bool {
        true
    }

    /// Whether a block that comes back can serve others only when its streams are done.
    fn is_late(&self, _block: u32) -> bool {
        false
    }

    /// A block came back, and is part of this free one.
    fn freed(&mut self, _memory: &mut Memory, _whole: Piece) {}

    /// Releases cached memory. Most allocators release none.
    fn trim(&mut self, _memory: &mut Memory) {}

    /// Restores the state at the beginning of the recording; false if that is not possible.
    fn begin_with(&mut self, _memory: &mut Memory, _given: &InitialState) -> bool {
        false
    }

    /// Bytes of the largest free block.
    fn largest_free(&self, memory: &Memory) -> u64 {
        memory.heap.largest_free()
    }
}

/// An allocator by its rules.
#[derive(Debug)]
pub(super) struct Caching<R> {
    rules: R,
    memory: Memory,
}

impl<R: Rules> Caching<R> {
    /// On a device of this size, for this number of blocks.
    pub fn new(rules: R, capacity: u64, blocks: u32) -> Caching<R> {
        let memory = Memory {
            heap: rules.heap(),
            device: Bytes::new(capacity),
            places: vec![Piece::NONE; blocks as usize],
        };
        Caching { rules, memory }
    }

    /// Its rules.
    pub fn rules(&self) -> &R {
        &self.rules
    }

    /// The address and the bytes of a block that was handed out.
    pub fn place(&self, block: u32) -> Option<(u64, u64)> {
        let piece = self.memory.places.get(block as usize).copied();
        let piece = piece.filter(|piece| *piece != Piece::NONE)?;
        let heap = &self.memory.heap;
        Some((heap.address(piece), heap.bytes(piece)))
    }

    /// The address and the bytes of the region of a block that was handed out.
    pub fn region(&self, block: u32) -> Option<(u64, u64)> {
        let piece = self.memory.places.get(block as usize).copied();
        let piece = piece.filter(|piece| *piece != Piece::NONE)?;
        Some(self.memory.heap.region(piece))
    }

    /// Addresses of regions that have ended since the last call.
    pub fn dropped(&mut self) -> Vec<u64> {
        self.memory.heap.dropped()
    }

    /// Whether a block that comes back can serve others only when its streams are done.
    pub fn is_late(&self, block: u32) -> bool {
        self.rules.is_late(block)
    }

    /// A block comes back, whatever still uses it.
    pub fn release(&mut self, block: u32) {
        let place = self.memory.places.get_mut(block as usize);
        let piece = place.map_or(Piece::NONE, |place| std::mem::replace(place, Piece::NONE));
        if piece != Piece::NONE {
            let whole = self.memory.heap.release(piece);
            self.rules.freed(&mut self.memory, whole);
        }
    }
}

impl<R: Rules> Allocator for Caching<R> {
    fn allocate(&mut self, request: &Request) -> Result<(), OutOfMemory> {
        let Caching { rules, memory } = self;
        let bytes = rules.rounded(request.bytes);
        let group = rules.group(request, bytes);
        let piece = match rules.find(memory, group, bytes) {
            Some(piece) => {
                memory.heap.take(piece);
                piece
            }
            None => rules.grow(memory, group, bytes)?,
        };
        let rest = memory.heap.bytes(piece).saturating_sub(bytes);
        if rules.splits(bytes, rest) {
            memory.heap.split(piece, bytes);
        }
        memory.place(request.block, piece);
        Ok(())
    }

    fn free(&mut self, request: &Request) {
        if !self.rules.is_late(request.block) {
            self.release(request.block);
        }
    }

    fn done(&mut self, request: &Request) {
        if self.rules.is_late(request.block) {
            self.release(request.block);
        }
    }

    fn trim(&mut self, request: &Request) {
        // They know nothing of what the program keeps in a stream-ordered pool.
        if request.stream.is_none() {
            self.rules.trim(&mut self.memory);
        }
    }

    fn begin_with(&mut self, given: &InitialState) -> bool {
        self.rules.begin_with(&mut self.memory, given)
    }

    fn reserved(&self) -> u64 {
        self.memory.device.held
    }

    fn largest_free(&self) -> u64 {
        self.rules.largest_free(&self.memory)
    }

    fn driver_time(&self) -> DriverTime {
        self.memory.device.time
    }
}
