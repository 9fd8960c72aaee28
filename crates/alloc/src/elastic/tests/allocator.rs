//! Simulates the allocator above: best fit in its own segments or ranges, for each stream and each
//! graph, as in PyTorch.

use super::machine::Device;
use crate::elastic::{Allocation, PAGE};
use crate::sim::Clock;
use std::collections::BTreeMap;

mod expandable;

/// Bytes that all sizes are rounded to, and the largest size that gets a small segment.
const UNIT: u64 = 512;
const SMALL: u64 = 1 << 20;
/// Bytes of segments, and the smallest size that gets a segment of its own size.
const SMALL_SEGMENT: u64 = 2 << 20;
const LARGE_SEGMENT: u64 = 8 << 20;
const LARGE: u64 = 6 << 20;

/// Owner of the blocks of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Stream(usize),
    Graph(usize),
}

#[derive(Clone, PartialEq, Eq)]
enum Is {
    /// Addresses of a range where nothing is mapped.
    Unmapped,
    Free,
    Live,
    /// Freed, and used by work of other streams until these clocks have passed.
    Waiting(Vec<Clock>),
}

struct Block {
    bytes: u64,
    is: Is,
}

/// A segment, or a range of which parts are mapped.
pub struct Segment {
    pub base: u64,
    pub bytes: u64,
    owner: Owner,
    is_small: bool,
    blocks: BTreeMap<u64, Block>,
}

impl Segment {
    fn is_unused(&self) -> bool {
        self.blocks
            .values()
            .all(|block| matches!(block.is, Is::Free))
    }

    /// True if it is of an existing graph.
    fn is_kept(&self, device: &Device) -> bool {
        matches!(self.owner, Owner::Graph(n) if device.has_graph(n))
    }

    fn merge(&mut self) {
        let mut merged: BTreeMap<u64, Block> = BTreeMap::new();
        for (address, block) in std::mem::take(&mut self.blocks) {
            if let Some(mut last) = merged.last_entry()
                && last.get().is == block.is
                && matches!(block.is, Is::Free | Is::Unmapped)
            {
                last.get_mut().bytes += block.bytes;
            } else {
                merged.insert(address, block);
            }
        }
        self.blocks = merged;
    }

    /// Mapped parts, or unmapped parts: address and bytes.
    pub fn parts(&self, are_mapped: bool) -> impl Iterator<Item = (u64, u64)> {
        let blocks = self.blocks.iter();
        let parts = blocks.filter(move |(_, block)| (block.is != Is::Unmapped) == are_mapped);
        parts.map(|(at, block)| (*at, block.bytes))
    }
}

#[derive(Default)]
pub struct Allocator {
    pub segments: Vec<Segment>,
    /// True if it reserves ranges and maps parts of them.
    expands: bool,
    /// Parts that were unmapped: address and bytes.
    pub unmapped: Vec<(u64, u64)>,
    /// Bytes of all live tensors.
    pub total: u64,
    /// True once an announcement has shown that it announces its tensors.
    is_trusted: bool,
    /// Bytes that the next announced sum is too large by.
    pub error: u64,
}

/// A block that was handed out, and the result of its announcement.
pub struct Handed {
    pub address: u64,
    pub bytes: u64,
    /// `None` if it was not announced.
    pub born: Option<Allocation>,
    /// Pages for which there was memory when the allocator grew for it; 0 if that is unknown.
    pub admitted: u64,
}

impl Allocator {
    pub fn new(expands: bool) -> Self {
        Allocator {
            expands,
            ..Allocator::default()
        }
    }

    /// Allocates a block, announced unless `is_silent`. `None`: out of memory.
    pub fn allocate(
        &mut self,
        device: &Device,
        owner: Owner,
        stream: Option<u8>,
        bytes: u64,
        is_silent: bool,
    ) -> Option<Handed> {
        let bytes = bytes.max(1).next_multiple_of(UNIT);
        self.process(device);
        let is_small = bytes <= SMALL;
        let mut admitted = 0;
        let (segment, address) = match self.best(owner, bytes, is_small) {
            Some(place) => place,
            None if self.expands => {
                let (segment, address, pages) =
                    self.expand(device, owner, bytes, is_small).or_else(|| {
                        self.empty(device);
                        self.expand(device, owner, bytes, is_small)
                    })?;
                admitted = pages;
                (segment, address)
            }
            None => {
                admitted = bytes.div_ceil(PAGE);
                let size = match bytes {
                    _ if is_small => SMALL_SEGMENT,
                    _ if bytes < LARGE => LARGE_SEGMENT,
                    bytes => bytes.next_multiple_of(SMALL_SEGMENT),
                };
                self.grow(device, owner, size, bytes, is_small)
                    .or_else(|| {
                        self.empty(device);
                        self.grow(device, owner, size, bytes, is_small)
                    })?
            }
        };
        let rest = if is_small || self.expands {
            UNIT
        } else {
            SMALL
        };
        let segment = &mut self.segments[segment];
        let block = segment.blocks.get_mut(&address)?;
        block.is = Is::Live;
        let left = block.bytes - bytes;
        if left >= rest {
            block.bytes = bytes;
            segment.blocks.insert(
                address + bytes,
                Block {
                    bytes: left,
                    is: Is::Free,
                },
            );
        }
        let bytes = segment.blocks.get(&address)?.bytes;
        self.total += bytes;
        let born = (!is_silent).then(|| {
            let error = std::mem::take(&mut self.error);
            let total = self.total + error;
            let born = device.elastic.allocated(address, bytes, total, stream);
            self.is_trusted |= born.proves;
            born
        });
        Some(Handed {
            address,
            bytes,
            born,
            admitted,
        })
    }

    /// Frees a block, for reuse after the work of these clocks.
    pub fn free(&mut self, device: &Device, address: u64, after: Vec<Clock>) {
        let holds = |s: &&mut Segment| (s.base..s.base + s.bytes).contains(&address);
        let segment = self.segments.iter_mut().find(holds).expect("a segment");
        let block = segment.blocks.get_mut(&address).expect("a block");
        let bytes = block.bytes;
        let is_elsewhere = !after.is_empty();
        if after.is_empty() {
            block.is = Is::Free;
            segment.merge();
        } else {
            block.is = Is::Waiting(after);
        }
        self.total -= bytes;
        let error = std::mem::take(&mut self.error);
        let total = self.total + error;
        device.elastic.freed(address, bytes, total, is_elsewhere);
    }

    fn process(&mut self, device: &Device) {
        for segment in &mut self.segments {
            for block in segment.blocks.values_mut() {
                if let Is::Waiting(clocks) = &block.is
                    && clocks.iter().all(|clock| device.sim.has_finished(clock))
                {
                    block.is = Is::Free;
                }
            }
            segment.merge();
        }
    }

    fn best(&self, owner: Owner, bytes: u64, is_small: bool) -> Option<(usize, u64)> {
        let all = self.segments.iter().enumerate();
        let mine = all.filter(|(_, s)| s.owner == owner && s.is_small == is_small);
        let blocks =
            mine.flat_map(|(n, s)| s.blocks.iter().map(move |(at, block)| (n, *at, block)));
        let fits =
            blocks.filter(|(_, _, block)| matches!(block.is, Is::Free) && block.bytes >= bytes);
        // A block at the end of what is mapped counts as all that it can become.
        let size = |n: usize, at, block: &Block| {
            let next = self.segments[n].blocks.get(&(at + block.bytes));
            let more = next.filter(|next| next.is == Is::Unmapped);
            block.bytes + more.map_or(0, |next| next.bytes)
        };
        let (n, at, _) = fits.min_by_key(|(n, at, block)| (size(*n, *at, block), *at))?;
        Some((n, at))
    }

    fn grow(
        &mut self,
        device: &Device,
        owner: Owner,
        bytes: u64,
        first: u64,
        is_small: bool,
    ) -> Option<(usize, u64)> {
        let base = device.elastic.segment(bytes, first, self.is_trusted)?;
        let is = Is::Free;
        self.segments.push(Segment {
            base,
            bytes,
            owner,
            is_small,
            blocks: BTreeMap::from([(base, Block { bytes, is })]),
        });
        Some((self.segments.len() - 1, base))
    }

    /// Frees segments without a live block, and unmaps the free chunks of ranges. Segments and
    /// ranges of existing graphs stay.
    pub fn empty(&mut self, device: &Device) {
        self.process(device);
        if self.expands {
            return self.shrink(device);
        }
        self.segments.retain(|segment| {
            let stays = segment.is_kept(device) || !segment.is_unused();
            if !stays {
                device.sim.unpin(segment.base, segment.bytes);
                match device.elastic.free(segment.base, false, |_| ()) {
                    Some(Ok(_)) => {}
                    other => {
                        if !device.fails {
                            device
                                .sim
                                .note(format!("a segment is not freed: {other:?}"));
                        }
                        return true;
                    }
                }
            }
            stays
        });
    }

    /// Finds the segment around an address.
    pub fn segment_of(&self, address: u64) -> Option<&Segment> {
        let holds = |s: &&Segment| (s.base..s.base + s.bytes).contains(&address);
        self.segments.iter().find(holds)
    }
}
