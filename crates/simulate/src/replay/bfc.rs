//! The best-fit-with-coalescing allocator of TensorFlow and of XLA's GPU clients, by its
//! documentation (`tsl/framework/bfc_allocator`). It grows as needed (`allow_growth`, without
//! preallocation). All streams share its memory.

use super::allocator::OutOfMemory;
use super::caching::{Memory, Rules, multiple};
use super::heap::Piece;

/// `kMinAllocationSize`: unit of sizes, bytes.
const BLOCK: u64 = 256;
/// Bytes of the first region; each later region is at least twice as large as the last.
const FIRST_REGION: u64 = 2 << 20;
/// `kMaxInternalFragmentation`: a block with at least this rest is split, bytes.
const SPARE: u64 = 128 << 20;
/// Percent of a refused region that is requested next (`kBackpedalFactor`).
const BACKPEDAL: u64 = 90;

/// Rules of the allocator, for [`Caching`](super::caching::Caching).
#[derive(Debug)]
pub(super) struct Bfc {
    next_region: u64,
}

impl Default for Bfc {
    fn default() -> Bfc {
        Bfc {
            next_region: FIRST_REGION,
        }
    }
}

impl Rules for Bfc {
    fn rounded(&self, bytes: u64) -> u64 {
        multiple(bytes, BLOCK)
    }

    fn splits(&self, bytes: u64, rest: u64) -> bool {
        rest >= bytes || rest >= SPARE
    }

    fn grow(&mut self, memory: &mut Memory, group: u32, bytes: u64) -> Result<Piece, OutOfMemory> {
        if !memory.device.has(bytes) {
            return Err(OutOfMemory);
        }
        let mut is_larger = false;
        while bytes > self.next_region {
            self.next_region = self.next_region.saturating_mul(2);
            is_larger = true;
        }
        let mut region = self.next_region;
        while memory.device.allocate(region).is_err() {
            let less = (region / 100).saturating_mul(BACKPEDAL) / BLOCK * BLOCK;
            if less < bytes {
                return Err(OutOfMemory);
            }
            region = less;
        }
        if !is_larger {
            self.next_region = self.next_region.saturating_mul(2);
        }
        Ok(memory.heap.add(group, region))
    }
}
