//! Blocks and segments that end with a context. The context's event has the bytes; the blocks
//! themselves do not name their context.

use super::apply::Ledger;
use super::block::{Block, Segment};
use super::change::Change;
use gpushim_trace::{Class, Event, Layer};

impl Ledger {
    /// Ends the blocks and segments of a destroyed context, by their bytes. Segments that are
    /// released by events of their own are not among them.
    pub(super) fn context_gone(
        &mut self,
        context: u64,
        device: u8,
        (allocated, reserved): (u64, u64),
        say: &mut (impl FnMut(&Change) + ?Sized),
    ) {
        let gone = self.segments_of(context, device, reserved);
        let (blocks, left) = self.blocks_of(context, device, allocated, &gone);
        for block in blocks {
            self.blocks[Layer::Device as usize].remove(&block.address);
            say(&Change::Freed(block));
        }
        if left > 0 {
            let requested = self.share(device, left);
            say(&Change::Ambiguous {
                device,
                requested,
                allocated: left,
            });
        }
        let mut seen = 0_u64;
        for segment in &gone {
            self.segments.remove(&segment.address);
            seen = seen.saturating_add(segment.size);
            say(&Change::Released(*segment));
        }
        let unseen = reserved.saturating_sub(seen);
        if unseen > 0 && device != Event::NO_DEVICE {
            say(&Change::ReleasedUnseen(Segment {
                address: 0,
                size: unseen,
                device,
                context,
            }));
        }
    }

    /// Returns the segments that name the context, in the order of addresses. Segments that name
    /// none are included if the context's remaining bytes cover them.
    fn segments_of(&self, context: u64, device: u8, reserved: u64) -> Vec<Segment> {
        let of = |context: u64| {
            let all = self.segments.values().copied();
            all.filter(move |one| one.context == context && is_there(device, one.device))
        };
        let size = |all: &[Segment]| {
            all.iter()
                .fold(0, |sum: u64, one| sum.saturating_add(one.size))
        };
        let mut gone: Vec<Segment> = of(context).filter(|_| context != 0).collect();
        let unnamed: Vec<Segment> = of(0).collect();
        if size(&unnamed) <= reserved.saturating_sub(size(&gone)) {
            gone.extend(unnamed);
        }
        gone.sort_unstable_by_key(|segment| segment.address);
        gone
    }

    /// Returns the blocks that ended, in the order of addresses. The second value is the bytes of
    /// blocks that ended and cannot be identified.
    fn blocks_of(
        &self,
        context: u64,
        device: u8,
        allocated: u64,
        gone: &[Segment],
    ) -> (Vec<Block>, u64) {
        let live = || {
            let all = self.live(Layer::Device).values();
            all.filter(move |block| is_there(device, block.device))
        };
        let size = |all: &[Block]| {
            all.iter()
                .fold(0, |sum: u64, one| sum.saturating_add(one.room))
        };
        // A block in a segment belongs to the segment's context.
        let mut kept: Vec<Segment> = self.segments.values().copied().collect();
        kept.retain(|one| {
            one.context != 0 && one.context != context && is_there(device, one.device)
        });
        kept.sort_unstable_by_key(|segment| segment.address);
        let mut named = gone.to_vec();
        named.retain(|one| one.context != 0);
        let (mut ours, mut open) = (Vec::new(), Vec::new());
        for block in live().filter(|block| !block.forwarded) {
            if lies_in(&named, block) {
                ours.push(*block);
            } else if !lies_in(&kept, block) {
                open.push(*block);
            }
        }
        let rest = allocated.saturating_sub(size(&ours));
        let of_malloc = |block: &Block| block.class == Class::Device;
        let only_malloc: Vec<Block> = open.iter().copied().filter(of_malloc).collect();
        let mut left = 0;
        if size(&open) <= rest {
            ours.append(&mut open);
        } else if size(&only_malloc) <= rest {
            // Stream-ordered memory outlives contexts.
            ours.extend(only_malloc);
        } else {
            left = rest;
        }
        if left == 0 && kept.is_empty() && !ours.is_empty() {
            let forwarded = live().filter(|block| block.forwarded);
            ours.extend(forwarded.filter(|block| ends_with_context(block.class)));
        }
        ours.sort_unstable_by_key(|block| block.address);
        (ours, left)
    }

    /// Returns the requested bytes that correspond to this many allocated bytes of a device.
    fn share(&self, device: u8, bytes: u64) -> u64 {
        let live = self.live(Layer::Device).values();
        let pooled = live.filter(|block| !block.forwarded && is_there(device, block.device));
        let (requested, allocated) =
            pooled.fold((0_u128, 0_u128), |(requested, allocated), one| {
                (
                    requested + u128::from(one.size),
                    allocated + u128::from(one.room),
                )
            });
        let share = (requested * u128::from(bytes)).checked_div(allocated);
        u64::try_from(share.unwrap_or(0)).unwrap_or(u64::MAX)
    }
}

/// Returns true if a device may be the device of the context, which may be unknown.
fn is_there(of_context: u8, device: u8) -> bool {
    of_context == Event::NO_DEVICE || device == of_context
}

/// Returns true if a block lies in one of these segments, which are in the order of addresses.
fn lies_in(segments: &[Segment], block: &Block) -> bool {
    let after = segments.partition_point(|segment| segment.address <= block.address);
    let before = after.checked_sub(1).and_then(|at| segments.get(at));
    before.is_some_and(|segment| segment.holds(block.address))
}

/// Returns true if memory of this class ends with the context that it was allocated in.
fn ends_with_context(class: Class) -> bool {
    !matches!(class, Class::Vmm | Class::PoolAsync | Class::GraphNode)
}
