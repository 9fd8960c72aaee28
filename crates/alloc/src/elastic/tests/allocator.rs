//! Simulates the allocator above: best fit in its own segments, for each stream and each graph, as
//! in PyTorch.

use super::machine::Device;
use crate::elastic::Allocation;
use crate::sim::Clock;
use std::collections::BTreeMap;

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

enum Is {
    Free,
    Live,
    /// Freed, and used by work of other streams until these clocks have passed.
    Waiting(Vec<Clock>),
}

struct Block {
    bytes: u64,
    is: Is,
}

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

    fn merge(&mut self) {
        let mut merged: BTreeMap<u64, Block> = BTreeMap::new();
        for (address, block) in std::mem::take(&mut self.blocks) {
            if let Some(mut last) = merged.last_entry()
                && matches!((&last.get().is, &block.is), (Is::Free, Is::Free))
            {
                last.get_mut().bytes += block.bytes;
            } else {
                merged.insert(address, block);
            }
        }
        self.blocks = merged;
    }
}

#[derive(Default)]
pub struct Allocator {
    pub segments: Vec<Segment>,
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
    /// True if its segment is new.
    pub is_first: bool,
}

impl Allocator {
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
        let mut is_first = false;
        let (segment, address) = match self.best(owner, bytes, is_small) {
            Some(place) => place,
            None => {
                is_first = true;
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
        let rest = if is_small { UNIT } else { SMALL };
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
            is_first,
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
        let (n, at, _) = fits.min_by_key(|(_, at, block)| (block.bytes, *at))?;
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
        let base = device.elastic.segment(bytes, first, self.is_trusted).ok()?;
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

    /// Frees segments without a live block, except segments of existing graphs.
    pub fn empty(&mut self, device: &Device) {
        self.process(device);
        let kept = |segment: &Segment| match segment.owner {
            Owner::Stream(_) => false,
            Owner::Graph(n) => device.has_graph(n),
        };
        self.segments.retain(|segment| {
            let stays = kept(segment) || !segment.is_unused();
            if !stays {
                device.sim.unpin(segment.base, segment.bytes);
                match device.elastic.free_segment(segment.base, |_| ()) {
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
