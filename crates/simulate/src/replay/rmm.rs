//! The two pools of RMM, by its documentation: `pool_memory_resource` with a size that doubles, and
//! `arena_memory_resource` with an arena for each stream.
//!
//! The initial size of the pool is 0 here, so that it grows from the first request. By default the
//! arenas reserve half of the available memory at the start, and never more.

use rustc_hash::FxHashMap;

use super::allocator::OutOfMemory;
use super::caching::{Memory, Rules, multiple};
use super::device::UNLIMITED;
use super::heap::{Heap, Piece};
use gpushim_analysis::requests::Request;

/// Unit of sizes, bytes (`CUDA_ALLOCATION_ALIGNMENT`).
const BLOCK: u64 = 256;
/// Least bytes that an arena takes at a time (`superblock::minimum_size`).
const SUPERBLOCK: u64 = 1 << 20;
/// Available bytes if no limit is given: an H100's memory according to the driver.
const DEVICE: u64 = 85_017_493_504;

/// `pool_memory_resource`: best fit, first among blocks of the same stream, then among blocks of
/// others. Before the pool grows, streams wait for each other, so blocks of all streams are one
/// group here. A growth adds the held bytes once more, or the request if it is larger. If the
/// driver refuses, it tries half of that.
#[derive(Debug, Default)]
pub(super) struct Pool;

impl Rules for Pool {
    fn rounded(&self, bytes: u64) -> u64 {
        multiple(bytes, BLOCK)
    }

    fn grow(&mut self, memory: &mut Memory, group: u32, bytes: u64) -> Result<Piece, OutOfMemory> {
        let mut more = memory.device.held.max(bytes);
        while memory.device.allocate(more).is_err() {
            if more == bytes {
                return Err(OutOfMemory);
            }
            more = (more / 2).max(bytes);
        }
        Ok(memory.heap.add(group, more))
    }
}

/// `arena_memory_resource`: first fit in the superblocks of a stream's arena. Superblocks are cut
/// from one range of addresses and return to it when they are empty.
#[derive(Debug)]
pub(super) struct Arena {
    /// Range from which superblocks are cut. Each superblock is a region of its arena.
    global: Heap,
    /// Last block of the range.
    last: Option<Piece>,
    arenas: FxHashMap<u64, u32>,
    /// Superblock in the range, by the first block of its region.
    superblocks: FxHashMap<Piece, Piece>,
}

impl Default for Arena {
    fn default() -> Arena {
        Arena {
            global: Heap::with_first_fit(),
            last: None,
            arenas: FxHashMap::default(),
            superblocks: FxHashMap::default(),
        }
    }
}

impl Arena {
    /// Updates `last` after the range was divided or merged at a block.
    fn changed(&mut self, piece: Piece) {
        if piece != Piece::NONE && self.global.after(piece) == Piece::NONE {
            self.last = Some(piece);
        }
    }

    /// Takes a free range of `bytes` bytes. Without a limit, a larger device is assumed if half of
    /// an H100 is not enough.
    fn reach(&mut self, memory: &mut Memory, bytes: u64) -> Result<Piece, OutOfMemory> {
        let is_limited = memory.device.capacity() < UNLIMITED;
        let Some(last) = self.last else {
            let available = memory.device.capacity().min(DEVICE);
            let half = available / 2 / BLOCK * BLOCK;
            if is_limited && bytes > half {
                return Err(OutOfMemory);
            }
            let size = half.max(bytes);
            memory.device.allocate(size)?;
            let range = self.global.add(0, size);
            self.last = Some(range);
            return Ok(range);
        };
        if is_limited {
            return Err(OutOfMemory);
        }
        let there = if self.global.is_free(last) {
            self.global.bytes(last)
        } else {
            0
        };
        let more = bytes.saturating_sub(there);
        memory.device.allocate(more)?;
        let new = self.global.extend(last, more);
        let whole = self.global.release(new);
        self.global.take(whole);
        self.changed(whole);
        Ok(whole)
    }
}

impl Rules for Arena {
    fn heap(&self) -> Heap {
        Heap::with_first_fit()
    }

    fn rounded(&self, bytes: u64) -> u64 {
        multiple(bytes, BLOCK)
    }

    fn group(&mut self, request: &Request, _bytes: u64) -> u32 {
        let next = self.arenas.len() as u32;
        *self
            .arenas
            .entry(request.stream.unwrap_or(0))
            .or_insert(next)
    }

    fn find(&mut self, memory: &Memory, group: u32, bytes: u64) -> Option<Piece> {
        memory.heap.first(group, bytes)
    }

    /// Takes a superblock for an arena, with room for a block.
    fn grow(&mut self, memory: &mut Memory, group: u32, bytes: u64) -> Result<Piece, OutOfMemory> {
        let bytes = multiple(bytes, SUPERBLOCK);
        let found = match self.global.first(0, bytes) {
            Some(found) => {
                self.global.take(found);
                found
            }
            None => self.reach(memory, bytes)?,
        };
        self.global.split(found, bytes);
        self.changed(found);
        self.changed(self.global.after(found));
        let region = memory.heap.add(group, bytes);
        self.superblocks.insert(region, found);
        Ok(region)
    }

    fn freed(&mut self, memory: &mut Memory, whole: Piece) {
        if !memory.heap.is_region(whole) {
            return;
        }
        if let Some(superblock) = self.superblocks.remove(&whole) {
            memory.heap.drop_region(whole);
            let whole = self.global.release(superblock);
            self.changed(whole);
        }
    }

    fn largest_free(&self, memory: &Memory) -> u64 {
        memory.heap.largest_free().max(self.global.largest_free())
    }
}

#[cfg(test)]
mod tests {
    use super::super::caching::Caching;
    use super::*;
    use crate::replay::Allocator;
    use gpushim_analysis::requests::Op;

    const MIB: u64 = 1 << 20;

    fn request(block: u32, bytes: u64) -> Request {
        Request {
            op: Op::Allocate,
            block,
            bytes,
            stream: Some(0),
            thread: 1,
            ns: 0,
        }
    }

    /// The end of the range stays known after any division and merge. Otherwise the range would
    /// grow at a wrong address.
    #[test]
    fn the_range_ends_with_its_last_block() {
        let mut arenas = Caching::new(Arena::default(), UNLIMITED, 4000);
        let mut live = Vec::new();
        let mut random = 3_u64;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        for block in 0..4000 {
            let made = request(block, 1 + next(600 * MIB));
            arenas.allocate(&made).expect("no limit");
            live.push(made);
            while next(2) == 0 && !live.is_empty() {
                let one = live.swap_remove(next(live.len() as u64) as usize);
                arenas.free(&one);
            }
            let Arena { global, last, .. } = arenas.rules();
            let last = last.expect("a range");
            assert_eq!(global.after(last), Piece::NONE, "{block}");
            let end = global.address(last) + global.bytes(last);
            assert_eq!(end, arenas.reserved(), "{block}");
        }
        assert!(arenas.reserved() > DEVICE / 2, "it grew");
    }
}
