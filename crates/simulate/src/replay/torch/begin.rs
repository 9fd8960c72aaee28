//! State at the beginning of a recording: segments, their blocks, and the free blocks between
//! these.

use std::collections::BTreeMap;

use crate::replay::caching::Memory;
use crate::replay::heap::Piece;
use crate::replay::torch::options::Options;
use crate::replay::torch::{Group, Torch, range};
use gpushim_analysis::requests::{InitialBlock, InitialSegment, InitialState};
use gpushim_torch::allocator::{LARGE_BUFFER, SMALL, SMALL_BUFFER};

/// Group of the requests that a segment serves.
pub(super) fn group(segment: &InitialSegment) -> Group {
    let of = &segment.of;
    let is_small = of.is_small.unwrap_or(if of.is_expandable {
        !segment.bytes.is_multiple_of(LARGE_BUFFER)
    } else {
        segment.bytes == SMALL_BUFFER
    });
    Group {
        stream: of.stream,
        pool: segment.pool,
        is_large: !is_small,
    }
}

impl Torch {
    /// Restores the segments and blocks of the beginning. Returns false if the state cannot be
    /// restored, in one of these cases:
    ///
    /// * There are no segments.
    /// * A block lies outside of all segments.
    /// * The segments expand and the options do not, or the reverse.
    pub(super) fn begin(&mut self, memory: &mut Memory, given: &InitialState) -> bool {
        let mut segments = given.segments.clone();
        segments.sort_unstable_by_key(|segment| segment.address);
        let mut blocks: Vec<InitialBlock> =
            given.blocks.iter().chain(&given.waiting).copied().collect();
        blocks.sort_unstable_by_key(|block| block.address);
        let is_inside = |block: &InitialBlock| {
            let after = segments.partition_point(|segment| segment.address <= block.address);
            let before = after.checked_sub(1).and_then(|at| segments.get(at));
            before.is_some_and(|segment| block.address - segment.address < segment.bytes)
        };
        let has_expandable = segments.iter().any(|segment| segment.of.is_expandable);
        let is_as_it_was = has_expandable == self.options.is_expandable;
        if segments.is_empty() || !is_as_it_was || !blocks.iter().all(is_inside) {
            return false;
        }
        let mut ranges: BTreeMap<u32, Vec<InitialSegment>> = BTreeMap::new();
        for segment in segments {
            memory.device.had(segment.bytes);
            let number = self.number(group(&segment));
            if segment.of.is_expandable {
                ranges.entry(number).or_default().push(segment);
            } else {
                let piece = memory.heap.add_at(number, segment.address, segment.bytes);
                self.lay(
                    memory,
                    piece,
                    within(&blocks, segment.address, segment.bytes),
                );
            }
        }
        for (number, stretches) in ranges {
            self.range(memory, number, &stretches, &blocks);
        }
        true
    }

    /// Adds an expandable segment, of which some stretches are mapped.
    fn range(
        &mut self,
        memory: &mut Memory,
        number: u32,
        stretches: &[InitialSegment],
        blocks: &[InitialBlock],
    ) {
        let Some(base) = stretches.first().map(|first| first.address) else {
            return;
        };
        self.ranges.insert(number, base);
        let mut rest = memory.heap.add_at(number, base, range::BYTES);
        let mut at = base;
        let mut next = 0;
        while let Some(first) = stretches.get(next) {
            // Adjacent stretches are merged.
            let (from, mut end) = (first.address, first.address);
            while let Some(more) = stretches.get(next).filter(|more| more.address == end) {
                end = end.saturating_add(more.bytes);
                next += 1;
            }
            if from < at || end - base >= range::BYTES {
                continue;
            }
            if from > at {
                let mapped = memory.heap.cut(rest, from - at);
                memory.heap.unmap(rest);
                rest = mapped;
            }
            let after = memory.heap.cut(rest, end - from);
            self.lay(memory, rest, within(blocks, from, end - from));
            (rest, at) = (after, end);
        }
        memory.heap.unmap(rest);
    }

    /// Places blocks into a used piece; the parts between them become free.
    fn lay(&mut self, memory: &mut Memory, piece: Piece, blocks: &[InitialBlock]) {
        let is_large = self.of(memory.heap.group(piece)).is_large;
        let mut rest = piece;
        let mut at = memory.heap.address(piece);
        let end = at.saturating_add(memory.heap.bytes(piece));
        for (index, block) in blocks.iter().enumerate() {
            if block.address < at || rest == Piece::NONE {
                continue;
            }
            if block.address > at {
                let used = memory.heap.cut(rest, block.address - at);
                memory.heap.release(rest);
                rest = used;
            }
            let next = blocks
                .get(index + 1)
                .map_or(end, |next| next.address.min(end));
            let room = next.saturating_sub(block.address);
            let mut size = self.options.rounded(block.bytes).min(room);
            if is_large && !self.is_cut(size, room - size) {
                size = room;
            }
            let after = memory.heap.cut(rest, size);
            memory.place(block.block, rest);
            at = block.address.saturating_add(size);
            rest = after;
        }
        if rest != Piece::NONE {
            memory.heap.release(rest);
        }
    }

    /// True if a large block of `bytes` bytes is split where `rest` bytes are left.
    fn is_cut(&self, bytes: u64, rest: u64) -> bool {
        let Options {
            is_expandable,
            max_split,
            ..
        } = self.options;
        is_expandable || (rest > SMALL && bytes < max_split)
    }
}

/// Blocks that begin in a stretch of addresses.
fn within(blocks: &[InitialBlock], address: u64, bytes: u64) -> &[InitialBlock] {
    let end = address.saturating_add(bytes);
    let from = blocks.partition_point(|block| block.address < address);
    let to = blocks.partition_point(|block| block.address < end);
    blocks.get(from..to).unwrap_or_default()
}
