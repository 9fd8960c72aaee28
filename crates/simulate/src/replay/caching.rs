//! Common parts of the caching allocators that are not gpushim's. They cut blocks from driver
//! memory, find a free block by a rule, and merge free blocks.

use super::allocator::{Allocator, DriverTime, OutOfMemory};
use super::bytes::Bytes;
use super::heap::{Heap, Piece};
use gpushim_analysis::requests::{InitialState, Request};

/// Rounds bytes up to a multiple of `of`; at least one unit.
pub(super) fn multiple(bytes: u64, of: u64) -> u64 {
    bytes.max(1).checked_next_multiple_of(of).unwrap_or(bytes)
}

/// Blocks and driver memory of an allocator.
#[derive(Debug)]
pub(super) struct Memory {
    pub heap: Heap,
    pub device: Bytes,
    /// Piece of each block, by the block's number.
    places: Vec<Piece>,
}

impl Memory {
    /// Records the piece of a block.
    pub fn place(&mut self, block: u32, piece: Piece) {
        if let Some(place) = self.places.get_mut(block as usize) {
            *place = piece;
        }
    }
}

/// Rules in which these allocators differ.
pub(super) trait Rules {
    /// Returns the heap in which blocks are found.
    fn heap(&self) -> Heap {
        Heap::default()
    }

    /// Bytes of the block for a request of `bytes` bytes.
    fn rounded(&self, bytes: u64) -> u64;

    /// Returns the group whose blocks serve a request for a block of `bytes` bytes.
    fn group(&mut self, _request: &Request, _bytes: u64) -> u32 {
        0
    }

    /// Finds the free block for a request.
    fn find(&mut self, memory: &Memory, group: u32, bytes: u64) -> Option<Piece> {
        memory.heap.best(group, bytes)
    }

    /// Gets memory for a block from the driver. The returned piece is not listed as free.
    fn grow(&mut self, memory: &mut Memory, group: u32, bytes: u64) -> Result<Piece, OutOfMemory>;

    /// True if a block is split when it has `_rest` bytes beyond the `_bytes` of the request.
    fn splits(&self, _bytes: u64, _rest: u64) -> bool {
        true
    }

    /// True if a freed block can serve other requests only after its streams have completed.
    fn is_late(&self, _block: u32) -> bool {
        false
    }

    /// Called after a block was freed, with the free block that contains it.
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

/// A caching allocator with some rules.
#[derive(Debug)]
pub(super) struct Caching<R> {
    rules: R,
    memory: Memory,
}

impl<R: Rules> Caching<R> {
    /// Makes an allocator on a device of `capacity` bytes, for `blocks` blocks.
    pub fn new(rules: R, capacity: u64, blocks: u32) -> Caching<R> {
        let memory = Memory {
            heap: rules.heap(),
            device: Bytes::new(capacity),
            places: vec![Piece::NONE; blocks as usize],
        };
        Caching { rules, memory }
    }

    /// Returns the rules of the allocator.
    pub fn rules(&self) -> &R {
        &self.rules
    }

    /// Address and bytes of a live block.
    pub fn place(&self, block: u32) -> Option<(u64, u64)> {
        let piece = self.piece(block)?;
        let heap = &self.memory.heap;
        Some((heap.address(piece), heap.bytes(piece)))
    }

    /// Address and bytes of the region of a live block.
    pub fn region(&self, block: u32) -> Option<(u64, u64)> {
        Some(self.memory.heap.region(self.piece(block)?))
    }

    fn piece(&self, block: u32) -> Option<Piece> {
        let piece = self.memory.places.get(block as usize).copied();
        piece.filter(|piece| *piece != Piece::NONE)
    }

    /// Takes the addresses and bytes that lost their memory since the last call.
    pub fn dropped(&mut self) -> Vec<(u64, u64)> {
        self.memory.heap.dropped()
    }

    /// True if a freed block can serve other requests only after its streams have completed.
    pub fn is_late(&self, block: u32) -> bool {
        self.rules.is_late(block)
    }

    /// Frees a block, even if streams still use it.
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
        // A trim with a stream concerns CUDA's stream-ordered pool, which these allocators do not
        // use.
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
