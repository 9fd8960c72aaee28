//! Expandable segments: a range of addresses for each group. Memory is mapped in whole pages where
//! it is needed, and unmapped where a page is free.

use crate::replay::allocator::OutOfMemory;
use crate::replay::caching::Memory;
use crate::replay::heap::{Heap, Piece};
use gpushim_torch::allocator::{LARGE_BUFFER, SMALL_BUFFER};

/// Bytes of a range: more than any device has.
pub(super) const BYTES: u64 = 1 << 44;

/// Bytes of the pages of a range.
pub(super) fn page(is_large: bool) -> u64 {
    if is_large { LARGE_BUFFER } else { SMALL_BUFFER }
}

/// Adds a range without mapped memory for a group, and returns its address.
pub(super) fn new(heap: &mut Heap, group: u32) -> u64 {
    let range = heap.add(group, BYTES);
    heap.unmap(range);
    heap.address(range)
}

/// Bytes that a free block can reach in place.
pub(super) fn reach(heap: &Heap, piece: Piece) -> u64 {
    let after = heap.after(piece);
    let more = if heap.is_unmapped(after) {
        heap.bytes(after)
    } else {
        0
    };
    heap.bytes(piece).saturating_add(more)
}

/// Takes memory for a block from a range. It uses the lowest place with enough free or unmapped
/// addresses, and maps the missing part. If memory runs out, the pages that were mapped until then
/// stay mapped and free.
pub(super) fn grow(
    memory: &mut Memory,
    group: u32,
    is_large: bool,
    bytes: u64,
) -> Result<Piece, OutOfMemory> {
    let mut piece = place(&memory.heap, group, bytes).ok_or(OutOfMemory)?;
    if memory.heap.is_unmapped(piece) {
        piece = map(memory, piece, bytes, page(is_large))?;
    }
    while memory.heap.bytes(piece) < bytes {
        let missing = bytes - memory.heap.bytes(piece);
        let after = memory.heap.after(piece);
        if !memory.heap.is_unmapped(after) {
            return Err(OutOfMemory);
        }
        piece = map(memory, after, missing, page(is_large))?;
    }
    memory.heap.take(piece);
    Ok(piece)
}

/// First block of the lowest row of free and unmapped blocks with at least `bytes` bytes together.
fn place(heap: &Heap, group: u32, bytes: u64) -> Option<Piece> {
    heap.unmapped(group).find_map(|unmapped| {
        let before = heap.before(unmapped);
        let first = if heap.is_free(before) {
            before
        } else {
            unmapped
        };
        let (mut there, mut next) = (0_u64, first);
        while there < bytes && (heap.is_free(next) || heap.is_unmapped(next)) {
            there = there.saturating_add(heap.bytes(next));
            next = heap.after(next);
        }
        (there >= bytes).then_some(first)
    })
}

/// Maps the first `bytes` bytes of a block in whole pages. Returns the free block that contains
/// them.
fn map(memory: &mut Memory, piece: Piece, bytes: u64, page: u64) -> Result<Piece, OutOfMemory> {
    let bytes = bytes.min(memory.heap.bytes(piece));
    let bytes = bytes.checked_next_multiple_of(page).ok_or(OutOfMemory)?;
    memory.device.map(bytes, page)?;
    memory.heap.map(piece, bytes);
    Ok(memory.heap.release(piece))
}

/// Unmaps the whole pages of a free block. Returns the number of unmapped bytes.
pub(super) fn unmap(memory: &mut Memory, piece: Piece, base: u64, page: u64) -> u64 {
    let heap = &mut memory.heap;
    let from = heap.address(piece).saturating_sub(base);
    let end = from.saturating_add(heap.bytes(piece)) / page * page;
    let begin = from.checked_next_multiple_of(page).unwrap_or(from);
    let bytes = end.saturating_sub(begin);
    if bytes == 0 {
        return 0;
    }
    heap.take(piece);
    let mut middle = piece;
    if begin > from {
        middle = heap.cut(piece, begin - from);
        heap.release(piece);
    }
    let after = heap.cut(middle, bytes);
    heap.unmap(middle);
    if after != Piece::NONE {
        heap.release(after);
    }
    memory.device.unmap(bytes, page);
    bytes
}
