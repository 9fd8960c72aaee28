//! Blocks in the segments that they were cut from.

use std::collections::BTreeMap;

use serde::Serialize;

use super::older::Older;
use crate::ledger::{Block, Segments, Taken};
use gpushim_trace::Event;

/// A segment is nearly empty if at most 1/`NEARLY_EMPTY` of it is in use.
const NEARLY_EMPTY: u64 = 8;
/// The smallest unit in which memory is mapped (`cuMemGetAllocationGranularity`, measured on an
/// H100).
const PAGE: u64 = 2 << 20;

/// The reserved memory of a device, in bytes; `reserved = allocated + empty + stuck + untold`, as
/// far as blocks and segments are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Room {
    /// Device ordinal, if known.
    pub device: Option<u8>,
    /// Held from the driver, or by a framework.
    pub reserved: u64,
    /// Handed out, with what it was rounded up by.
    pub allocated: u64,
    /// Asked for.
    pub requested: u64,
    /// Free bytes of empty segments, and free pages: they could be released.
    pub empty: u64,
    /// Free bytes beside blocks: they cannot be released while these live.
    pub stuck: u64,
    /// Stuck bytes of nearly empty segments.
    pub pinned: u64,
    /// How many those are.
    pub pinned_segments: u64,
    /// The largest request that could be met without taking more.
    pub largest_free: u64,
    /// Free bytes of segments that were reserved before the recording began: it is not known where
    /// they are, and so not whether they are empty.
    pub untold: u64,
}

/// Memory that was taken as a whole and is cut into blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Segment {
    /// Where it begins.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Device ordinal.
    pub device: Option<u8>,
    /// Pages around blocks, of a pool that maps them where it needs them: free ones beside these can move.
    pub pages: bool,
    /// Bytes in use.
    pub used: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Bytes of its largest free part.
    pub largest_free: u64,
    /// Stretches in use: offset and bytes of each.
    pub parts: Vec<(u64, u64)>,
}

impl Segment {
    /// Returns true if a little of it is in use.
    pub fn is_nearly_empty(&self) -> bool {
        self.used > 0 && self.used.saturating_mul(NEARLY_EMPTY) <= self.size
    }

    fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }

    /// Puts in a block that begins in it; blocks come in the order of addresses.
    fn put(&mut self, block: &Block) {
        let begin = block.address.saturating_sub(self.address);
        let end = begin.saturating_add(block.room).min(self.size);
        self.blocks += 1;
        match self.parts.last_mut() {
            Some((at, bytes)) if at.saturating_add(*bytes) >= begin => {
                *bytes = end.saturating_sub(*at).max(*bytes);
            }
            _ => self.parts.push((begin, end.saturating_sub(begin))),
        }
    }

    /// Computes the bytes in use and the largest free piece, once all blocks are in it.
    fn finish(&mut self) {
        self.used = self.parts.iter().map(|(_, bytes)| bytes).sum();
        let mut at = 0;
        for (begin, bytes) in self.parts.iter().chain([&(self.size, 0)]) {
            self.largest_free = self.largest_free.max(begin.saturating_sub(at));
            at = begin.saturating_add(*bytes);
        }
    }
}

/// All segments with the blocks in them.
pub(super) struct Layout<'a> {
    segments: BTreeMap<u64, (Segment, Vec<&'a Block>)>,
    /// Bytes of pages at unknown places, and bytes of pages around blocks, by device.
    pages: BTreeMap<Option<u8>, (u64, u64)>,
    /// Blocks in segments that were reserved before the recording began, by device: their bytes,
    /// and the requested bytes.
    outside: BTreeMap<Option<u8>, (u64, u64)>,
    older: Older,
}

fn ordinal(device: u8) -> Option<u8> {
    (device != Event::NO_DEVICE).then_some(device)
}

impl<'a> Layout<'a> {
    /// Puts live blocks into the reserved segments.
    pub(super) fn of(held: &Segments, blocks: &'a [Block], older: Older) -> Layout<'a> {
        let mut blocks: Vec<&Block> = blocks.iter().collect();
        blocks.sort_unstable_by_key(|block| block.address);
        let mut layout = Layout {
            segments: BTreeMap::new(),
            pages: BTreeMap::new(),
            outside: BTreeMap::new(),
            older,
        };
        let mut unused = BTreeMap::new();
        for (address, taken) in held.held() {
            if taken.used || taken.whole {
                layout.insert(address, &taken);
            } else {
                unused.insert(address, taken);
            }
        }
        let mut loose = Vec::new();
        for block in blocks {
            if !layout.put(block, &mut unused) {
                loose.push(block);
            }
        }
        let has_pages = !loose.is_empty() && layout.older.is_whole();
        for block in loose {
            if has_pages {
                layout.put_on_pages(block);
            } else {
                let (allocated, requested) =
                    layout.outside.entry(ordinal(block.device)).or_default();
                *allocated = allocated.saturating_add(block.room);
                *requested = requested.saturating_add(block.size);
            }
        }
        for (address, taken) in unused {
            // If blocks lie outside all segments, these are handles of the pages below the blocks.
            if has_pages && !taken.whole {
                let (all, _) = layout.pages.entry(ordinal(taken.device)).or_default();
                *all = all.saturating_add(taken.size);
            } else {
                layout.insert(address, &taken);
            }
        }
        for (segment, _) in layout.segments.values_mut() {
            segment.finish();
            if segment.pages {
                let (_, used) = layout.pages.entry(segment.device).or_default();
                *used = used.saturating_add(segment.size);
            }
        }
        layout
    }

    fn insert(&mut self, address: u64, taken: &Taken) {
        let segment = Segment {
            address,
            size: taken.size,
            device: ordinal(taken.device),
            ..Segment::default()
        };
        self.segments.insert(address, (segment, Vec::new()));
    }

    /// Puts a block into its segment, if it is known.
    fn put(&mut self, block: &'a Block, unused: &mut BTreeMap<u64, Taken>) -> bool {
        let end = block.address.saturating_add(block.room);
        let Some((segment, blocks)) = of(&mut self.segments, block.address) else {
            return false;
        };
        blocks.push(block);
        let (key, mut to) = (segment.address, segment.end());
        // A block across several pieces shows that they are one segment.
        while to < end {
            let next = self.segments.remove(&to).map(|(next, _)| next.size);
            let Some(size) = next.or_else(|| unused.remove(&to).map(|taken| taken.size)) else {
                break;
            };
            to = to.saturating_add(size.max(1));
        }
        if let Some((segment, _)) = self.segments.get_mut(&key) {
            segment.size = to.saturating_sub(key);
            segment.put(block);
        }
        true
    }

    /// Puts a block onto pages of its own, or onto those of the block before it.
    fn put_on_pages(&mut self, block: &'a Block) {
        let begin = block.address / PAGE * PAGE;
        let end = block.address.saturating_add(block.room.max(1));
        let end = end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        let last = self.segments.range_mut(..=begin).next_back();
        let joined = last.filter(|(_, (segment, _))| segment.pages && segment.end() >= begin);
        let (segment, blocks) = match joined {
            Some((_, of)) => of,
            None => {
                let segment = Segment {
                    address: begin,
                    device: ordinal(block.device),
                    pages: true,
                    ..Segment::default()
                };
                self.segments.entry(begin).or_insert((segment, Vec::new()))
            }
        };
        segment.size = segment.size.max(end.saturating_sub(segment.address));
        segment.put(block);
        blocks.push(block);
    }

    /// Returns the segments of which little is in use, each with its blocks.
    pub(super) fn nearly_empty(&self) -> impl Iterator<Item = (&Segment, &[&'a Block])> {
        let all = self.segments.values();
        all.filter(|(segment, _)| segment.is_nearly_empty())
            .map(|(segment, blocks)| (segment, blocks.as_slice()))
    }

    /// Returns the figures of each device. A framework's own figure of allocated bytes (`words`) is
    /// more exact than the sum of the requests to it.
    pub(super) fn rooms(&self, words: &[(u8, u64)]) -> Vec<Room> {
        let mut rooms = BTreeMap::<Option<u8>, Room>::new();
        for (segment, blocks) in self.segments.values() {
            let room = rooms.entry(segment.device).or_default();
            let free = segment.size.saturating_sub(segment.used);
            for block in blocks {
                room.requested = room.requested.saturating_add(block.size);
            }
            room.allocated = room.allocated.saturating_add(segment.used);
            room.reserved = room.reserved.saturating_add(segment.size);
            room.largest_free = room.largest_free.max(segment.largest_free);
            if segment.blocks == 0 {
                room.empty = room.empty.saturating_add(free);
            } else {
                room.stuck = room.stuck.saturating_add(free);
            }
            if segment.is_nearly_empty() {
                room.pinned = room.pinned.saturating_add(free);
                room.pinned_segments += 1;
            }
        }
        for (device, (all, used)) in &self.pages {
            let room = rooms.entry(*device).or_default();
            let free = all.saturating_sub(*used);
            room.reserved = room.reserved.saturating_add(free);
            room.empty = room.empty.saturating_add(free);
            room.largest_free = room.largest_free.max(free);
        }
        for (device, (allocated, requested)) in &self.outside {
            let room = rooms.entry(*device).or_default();
            room.allocated = room.allocated.saturating_add(*allocated);
            room.requested = room.requested.saturating_add(*requested);
            room.reserved = room.reserved.saturating_add(*allocated);
        }
        for (device, reserved) in self.older.reserved().filter(|(_, bytes)| *bytes > 0) {
            let room = rooms.entry(ordinal(device)).or_default();
            room.untold = reserved.saturating_sub(room.reserved);
            room.reserved = room.reserved.max(reserved);
        }
        for (device, room) in &mut rooms {
            room.device = *device;
            let said = words.iter().find(|(one, _)| ordinal(*one) == *device);
            if let Some((_, said)) = said {
                room.allocated = room.allocated.max((*said).min(room.reserved));
                let free = room.reserved.saturating_sub(room.allocated);
                room.stuck = room.stuck.min(free.saturating_sub(room.empty));
                room.pinned = room.pinned.min(room.stuck);
                let told = room.empty.saturating_add(room.stuck);
                room.untold = room.untold.min(free.saturating_sub(told));
            }
        }
        rooms.into_values().collect()
    }

    pub(super) fn into_segments(self) -> Vec<Segment> {
        let segments = self.segments.into_values();
        segments.map(|(segment, _)| segment).collect()
    }
}

/// The segment that an address is in.
fn of<T>(segments: &mut BTreeMap<u64, (Segment, T)>, address: u64) -> Option<&mut (Segment, T)> {
    let (_, of) = segments.range_mut(..=address).next_back()?;
    (address < of.0.end()).then_some(of)
}
