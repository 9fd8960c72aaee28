//! PyTorch's caching allocator, by its documentation and the constants in it
//! (`c10/cuda/CUDACachingAllocator`, PyTorch 1.10 to 2.11).
//!
//! The model follows a snapshot in these points, as far as they are recorded:
//!
//! * The options that were set.
//! * The pools of graphs and of the program.
//! * The time at which streams were done with a block.
//! * The addresses that the driver chose.
//! * The segments that were released, and when.

use std::collections::VecDeque;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::allocator::OutOfMemory;
use super::caching::{Memory, Rules};
use super::heap::Piece;
use gpushim_analysis::requests::{InitialState, RecordedAllocator, Request, Requests};
use gpushim_torch::allocator::{BLOCK, SMALL, segment};

mod begin;
mod elastic;
mod give_back;
mod options;
mod range;
#[cfg(test)]
mod tests;

pub(super) use elastic::Elastic;
pub use options::Options;

/// Rules of the allocator, and the recorded facts that they follow.
#[derive(Debug)]
pub(super) struct Torch {
    options: Options,
    recorded: RecordedAllocator,
    /// True if expandable segments serve other pools than the default pool.
    all_expand: bool,
    /// Groups by their numbers.
    groups: IndexSet<Group, FxBuildHasher>,
    /// Address of the range of each group that expands.
    ranges: FxHashMap<u32, u64>,
    /// Addresses that the driver chose for segments of a size, in order.
    addresses: FxHashMap<(Group, u64), VecDeque<u64>>,
    /// Number of requests to release cached memory so far.
    trims: usize,
    /// Number of searches for a large block. `freed` has its value at the time when a whole segment
    /// became free.
    looks: u64,
    freed: FxHashMap<Piece, u64>,
}

/// Key of the blocks that can serve the same requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Group {
    stream: u64,
    pool: u32,
    is_large: bool,
}

impl Torch {
    /// True if a block is in a private pool of a graph or of the program.
    fn is_of_own_pool(&self, block: u32) -> bool {
        self.recorded.pool(block) != 0
    }

    /// Makes the rules with the options of the recording; `expands` replaces `expandable_segments`.
    pub fn new(requests: &Requests, expands: Option<bool>) -> Torch {
        let mut options = Options::of(requests);
        options.is_expandable = expands.unwrap_or(options.is_expandable);
        let recorded = requests.allocator().clone();
        let given = requests.given().segments.iter();
        let own = given
            .chain(&recorded.got)
            .filter(|segment| segment.pool != 0);
        let all_expand =
            own.clone().count() == 0 || own.clone().any(|segment| segment.of.is_expandable);
        let mut addresses: FxHashMap<_, VecDeque<u64>> = FxHashMap::default();
        for segment in recorded
            .got
            .iter()
            .filter(|segment| !segment.of.is_expandable)
        {
            let group = begin::group(segment);
            let chosen = addresses.entry((group, segment.bytes)).or_default();
            chosen.push_back(segment.address);
        }
        Torch {
            options,
            recorded,
            all_expand,
            groups: IndexSet::default(),
            ranges: FxHashMap::default(),
            addresses,
            trims: 0,
            looks: 0,
            freed: FxHashMap::default(),
        }
    }

    fn number(&mut self, group: Group) -> u32 {
        self.groups.insert_full(group).0 as u32
    }

    fn of(&self, number: u32) -> Group {
        let group = self.groups.get_index(number as usize);
        group.copied().unwrap_or_default()
    }

    fn expands(&self, group: Group) -> bool {
        self.options.is_expandable && (group.pool == 0 || self.all_expand)
    }

    /// Gets memory for a block from the driver, without releasing any.
    fn get(&mut self, memory: &mut Memory, number: u32, bytes: u64) -> Result<Piece, OutOfMemory> {
        let group = self.of(number);
        if self.expands(group) {
            self.ranges
                .entry(number)
                .or_insert_with(|| range::new(&mut memory.heap, number));
            return range::grow(memory, number, group.is_large, bytes);
        }
        let segment = segment(bytes);
        memory.device.allocate(segment)?;
        let chosen = self.addresses.get_mut(&(group, segment));
        Ok(match chosen.and_then(VecDeque::pop_front) {
            Some(address) => memory.heap.add_at(number, address, segment),
            None => memory.heap.add(number, segment),
        })
    }
}

impl Rules for Torch {
    fn rounded(&self, bytes: u64) -> u64 {
        self.options.rounded(bytes)
    }

    fn group(&mut self, request: &Request, bytes: u64) -> u32 {
        self.number(Group {
            stream: request.stream.unwrap_or(0),
            pool: self.recorded.pool(request.block),
            is_large: bytes > SMALL,
        })
    }

    /// Best fit, where the size of an expandable block is the one that it can reach.
    fn find(&mut self, memory: &Memory, group: u32, bytes: u64) -> Option<Piece> {
        self.looks += u64::from(bytes > SMALL);
        let heap = &memory.heap;
        let mut fitting = heap.fitting(group, bytes);
        let mut best = fitting.next()?;
        for next in fitting {
            if range::reach(heap, next) >= range::reach(heap, best) {
                break;
            }
            best = next;
        }
        // A block that is too large to be split serves only requests of about its size.
        let (there, most) = (heap.bytes(best), self.options.max_split);
        let is_wasted = if bytes < most {
            there >= most
        } else {
            there >= bytes.saturating_add(self.options.spare)
        };
        (!is_wasted).then_some(best)
    }

    fn grow(&mut self, memory: &mut Memory, group: u32, bytes: u64) -> Result<Piece, OutOfMemory> {
        self.collect(memory);
        // A failed request is repeated after some blocks were released (`max_split_size_mb`), then
        // after all were.
        if let Ok(piece) = self.get(memory, group, bytes) {
            return Ok(piece);
        }
        if self.release_some(memory, group, bytes)
            && let Ok(piece) = self.get(memory, group, bytes)
        {
            return Ok(piece);
        }
        if !self.release_all(memory, &[]) {
            return Err(OutOfMemory);
        }
        self.get(memory, group, bytes)
    }

    /// True for any rest of a small block or of an expandable segment. For other large blocks the
    /// rest must exceed a small request.
    fn splits(&self, bytes: u64, rest: u64) -> bool {
        if bytes <= SMALL || self.options.is_expandable {
            rest >= BLOCK
        } else {
            bytes < self.options.max_split && rest > SMALL
        }
    }

    fn is_late(&self, block: u32) -> bool {
        self.recorded.is_late(block)
    }

    fn freed(&mut self, memory: &mut Memory, whole: Piece) {
        if self.options.collect_above > 0.0 && memory.heap.is_region(whole) {
            self.freed.insert(whole, self.looks);
        }
    }

    fn trim(&mut self, memory: &mut Memory) {
        let named = self
            .recorded
            .gave_back
            .get_mut(self.trims)
            .map(std::mem::take);
        self.trims += 1;
        self.release_all(memory, &named.unwrap_or_default());
    }

    fn begin_with(&mut self, memory: &mut Memory, given: &InitialState) -> bool {
        self.begin(memory, given)
    }
}
