//! A placement of all blocks of a run, made when all lifetimes are known: what a run that repeats itself
//! would need at best.
//!
//! The largest blocks first, each at the lowest place that no block has which lives at the same time.

use super::bytes::Bytes;
use super::device::PAGE;
use super::requests::{Op, Request, Requests};
use super::{Allocator, DriverTime, OutOfMemory};

/// Blocks begin at multiples of this, bytes.
const BLOCK: u64 = 512;
/// A plan is made for at most so many blocks: its cost grows with their square, to some seconds.
pub const MOST: u32 = 60_000;

/// Where each block goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Offset of each block, by its number.
    offsets: Vec<u64>,
    /// Bytes from the first to the end of the last.
    bytes: u64,
}

/// A block that has its place.
#[derive(Clone, Copy, Debug)]
struct Placed {
    offset: u64,
    end: u64,
    life: Life,
}

/// From which request to which a block lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Life {
    from: u32,
    to: u32,
}

impl Life {
    fn meets(self, other: Life) -> bool {
        self.from < other.to && other.from < self.to
    }
}

impl Plan {
    /// For all requests; `None` if they are more than [`MOST`].
    pub fn of(requests: &Requests) -> Option<Plan> {
        if requests.blocks() > MOST {
            return None;
        }
        let count = requests.blocks() as usize;
        let mut blocks = vec![
            (
                0_u64,
                Life {
                    from: 0,
                    to: u32::MAX
                }
            );
            count
        ];
        for (at, request) in requests.iter().enumerate() {
            let Some((bytes, life)) = blocks.get_mut(request.block as usize) else {
                continue;
            };
            match request.op {
                Op::Allocate => (*bytes, life.from) = (rounded(request.bytes), at as u32),
                Op::Free => life.to = at as u32,
                Op::Done | Op::Trim => {}
            }
        }
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&block| {
            let (bytes, life) = blocks.get(block).copied().unwrap_or_default();
            (std::cmp::Reverse(bytes), life.from)
        });
        let mut plan = Plan {
            offsets: vec![0; count],
            bytes: 0,
        };
        // In the order of their offsets.
        let mut placed: Vec<Placed> = Vec::with_capacity(count);
        for block in order {
            let (bytes, life) = blocks.get(block).copied().unwrap_or_default();
            let offset = lowest(&placed, bytes, life);
            let end = offset.saturating_add(bytes);
            let at = placed.partition_point(|other| other.offset < offset);
            placed.insert(at, Placed { offset, end, life });
            plan.bytes = plan.bytes.max(end);
            if let Some(place) = plan.offsets.get_mut(block) {
                *place = offset;
            }
        }
        Some(plan)
    }

    /// Bytes that all of it takes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where a block goes, bytes from the beginning.
    pub fn offset(&self, block: u32) -> Option<u64> {
        self.offsets.get(block as usize).copied()
    }
}

fn rounded(bytes: u64) -> u64 {
    bytes
        .max(1)
        .checked_next_multiple_of(BLOCK)
        .unwrap_or(bytes)
}

/// The lowest place for a block.
fn lowest(placed: &[Placed], bytes: u64, life: Life) -> u64 {
    let mut at = 0;
    for other in placed.iter().filter(|other| other.life.meets(life)) {
        if other.offset.saturating_sub(at) >= bytes && other.offset >= at {
            break;
        }
        at = at.max(other.end);
    }
    at
}

/// Serves the requests that a plan was made of: takes all memory at once.
#[derive(Debug)]
pub(super) struct Planned {
    plan: Plan,
    device: Bytes,
}

impl Planned {
    /// On a device with so many bytes.
    pub fn new(capacity: u64, plan: Plan) -> Planned {
        Planned {
            plan,
            device: Bytes::new(capacity),
        }
    }
}

impl Allocator for Planned {
    fn allocate(&mut self, _: &Request) -> Result<(), OutOfMemory> {
        if self.device.held == 0 {
            let all = self.plan.bytes;
            self.device
                .allocate(all.checked_next_multiple_of(PAGE).unwrap_or(all))?;
        }
        Ok(())
    }

    fn free(&mut self, _: &Request) {}

    fn trim(&mut self) {}

    fn reserved(&self) -> u64 {
        self.device.held
    }

    fn largest_free(&self) -> u64 {
        0
    }

    fn driver_time(&self) -> DriverTime {
        self.device.time
    }
}
