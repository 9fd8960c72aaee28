//! The best-fit-with-coalescing allocator of TensorFlow and of XLA's GPU clients, by its documentation
//! (`tsl/framework/bfc_allocator`), growing as needed (`allow_growth`, no preallocation).

use super::bytes::Bytes;
use super::heap::{Heap, Piece};
use super::requests::Request;
use super::{Allocator, DriverTime, OutOfMemory};

/// `kMinAllocationSize`: sizes are multiples of it, bytes.
const BLOCK: u64 = 256;
/// The first region has this size; each later one is at least twice as large as the last.
const FIRST_REGION: u64 = 2 << 20;
/// `kMaxInternalFragmentation`: a block with more to spare than this is split.
const SPARE: u64 = 128 << 20;
/// What is asked for instead of a region that could not be had, in percent of it (`kBackpedalFactor`).
const BACKPEDAL: u64 = 90;

/// Its state. Streams share all memory.
#[derive(Debug)]
pub(super) struct Bfc {
    heap: Heap,
    device: Bytes,
    next_region: u64,
    places: Vec<Piece>,
}

impl Bfc {
    /// On a device with so many bytes, for so many blocks.
    pub fn new(capacity: u64, blocks: u32) -> Bfc {
        Bfc {
            heap: Heap::default(),
            device: Bytes::new(capacity),
            next_region: FIRST_REGION,
            places: vec![Piece::NONE; blocks as usize],
        }
    }

    fn grow(&mut self, bytes: u64) -> Result<Piece, OutOfMemory> {
        let mut is_larger = false;
        while bytes > self.next_region {
            self.next_region = self.next_region.saturating_mul(2);
            is_larger = true;
        }
        let mut region = self.next_region;
        while self.device.allocate(region).is_err() {
            let less = (region / 100).saturating_mul(BACKPEDAL) / BLOCK * BLOCK;
            if less < bytes {
                return Err(OutOfMemory);
            }
            region = less;
        }
        if !is_larger {
            self.next_region = self.next_region.saturating_mul(2);
        }
        Ok(self.heap.add(0, region))
    }
}

impl Allocator for Bfc {
    fn allocate(&mut self, request: &Request) -> Result<(), OutOfMemory> {
        let bytes = request.bytes.max(1);
        let bytes = bytes.checked_next_multiple_of(BLOCK).unwrap_or(bytes);
        let piece = match self.heap.best(0, bytes) {
            Some(piece) => {
                self.heap.take(piece);
                piece
            }
            None => self.grow(bytes)?,
        };
        let there = self.heap.bytes(piece);
        if there >= bytes.saturating_mul(2) || there.saturating_sub(bytes) >= SPARE {
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
