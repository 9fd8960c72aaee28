//! Regions of addresses that are split into blocks and merged again. All allocators except
//! gpushim's use them.
//!
//! A region belongs to a group, and free blocks are found by group. Blocks of two regions never
//! merge. The first block of a region keeps its number until the region is dropped.
//!
//! A block is free, used, or unmapped. A used block is not listed as free.

use std::collections::BTreeSet;

use super::first_fit::FirstFit;

/// Number that stands for no block.
const NONE: u32 = u32::MAX;

/// Number of a block in a [`Heap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Piece(u32);

impl Piece {
    /// Value that stands for no block.
    pub const NONE: Piece = Piece(NONE);
}

#[derive(Clone, Copy, Debug)]
struct Node {
    address: u64,
    bytes: u64,
    before: u32,
    after: u32,
    group: u32,
    is_free: bool,
    /// False for addresses without memory; these are neither free nor used.
    is_mapped: bool,
}

/// Free, used and unmapped blocks of regions.
#[derive(Debug, Default)]
pub(super) struct Heap {
    nodes: Vec<Node>,
    /// Numbers of nodes that can be used again.
    unused: Vec<u32>,
    by_size: BTreeSet<(u32, u64, u64, u32)>,
    /// Free blocks by address, for the allocators with first fit.
    by_address: Option<FirstFit>,
    unmapped: BTreeSet<(u32, u64, u32)>,
    /// Address of the next region.
    next: u64,
    /// Addresses and bytes that lost their memory since the last call of [`Heap::dropped`].
    dropped: Vec<(u64, u64)>,
}

/// Bytes between regions, so that they are never adjacent.
const APART: u64 = 1 << 30;

impl Heap {
    /// Makes a heap that supports [`Heap::first`].
    pub fn with_first_fit() -> Heap {
        Heap {
            by_address: Some(FirstFit::default()),
            ..Heap::default()
        }
    }

    /// Adds a region and returns its one block, which is used until it is
    /// [released](Heap::release).
    pub fn add(&mut self, group: u32, bytes: u64) -> Piece {
        let address = self.next;
        self.next = address.saturating_add(bytes).saturating_add(APART);
        self.add_at(group, address, bytes)
    }

    /// Adds a region like [`Heap::add`], at a known address.
    pub fn add_at(&mut self, group: u32, address: u64, bytes: u64) -> Piece {
        self.next = self
            .next
            .max(address.saturating_add(bytes).saturating_add(APART));
        let node = Node {
            address,
            bytes,
            before: NONE,
            after: NONE,
            group,
            is_free: false,
            is_mapped: true,
        };
        Piece(self.put(node))
    }

    /// Finds the smallest free block of a group with at least `bytes` bytes; of several, the
    /// lowest.
    pub fn best(&self, group: u32, bytes: u64) -> Option<Piece> {
        self.fitting(group, bytes).next()
    }

    /// Free blocks of a group with at least `bytes` bytes, by size and then by address.
    pub fn fitting(&self, group: u32, bytes: u64) -> impl Iterator<Item = Piece> + '_ {
        let fitting = self.by_size.range((group, bytes, 0, 0)..);
        let of_group = fitting.take_while(move |&&(of, ..)| of == group);
        of_group.map(|&(.., id)| Piece(id))
    }

    /// Finds the largest free block of a group.
    pub fn largest(&self, group: u32) -> Option<Piece> {
        let all = self
            .by_size
            .range((group, 0, 0, 0)..=(group, u64::MAX, u64::MAX, u32::MAX));
        all.last().map(|&(.., id)| Piece(id))
    }

    /// Finds the lowest free block of a group with at least `bytes` bytes. `None` without [first
    /// fit](Heap::with_first_fit).
    pub fn first(&self, group: u32, bytes: u64) -> Option<Piece> {
        self.by_address.as_ref()?.first(group, bytes).map(Piece)
    }

    /// Bytes of the largest free block.
    pub fn largest_free(&self) -> u64 {
        // The last block of each group is its largest.
        let mut largest = 0;
        let mut from = (0, 0, 0, 0);
        while let Some(&(group, ..)) = self.by_size.range(from..).next() {
            let end = (group.saturating_add(1), 0, 0, 0);
            let last = self.by_size.range((group, 0, 0, 0)..end).next_back();
            largest = largest.max(last.map_or(0, |&(_, bytes, _, _)| bytes));
            if group == u32::MAX {
                break;
            }
            from = end;
        }
        largest
    }

    /// Returns the bytes of a block.
    pub fn bytes(&self, piece: Piece) -> u64 {
        self.node(piece).map_or(0, |node| node.bytes)
    }

    /// Makes a free block used.
    pub fn take(&mut self, piece: Piece) {
        self.unlist(piece);
    }

    /// Shortens a used block to `bytes` bytes; the rest becomes free.
    pub fn split(&mut self, piece: Piece, bytes: u64) {
        let rest = self.cut(piece, bytes);
        self.release(rest);
    }

    /// Shortens a used block to `bytes` bytes. Returns the rest as a used block; [`Piece::NONE`] if
    /// there is none.
    pub fn cut(&mut self, piece: Piece, bytes: u64) -> Piece {
        let Some(node) = self.node(piece).copied().filter(|node| node.bytes > bytes) else {
            return Piece::NONE;
        };
        let rest = self.put(Node {
            address: node.address.saturating_add(bytes),
            bytes: node.bytes - bytes,
            before: piece.0,
            is_free: false,
            ..node
        });
        if let Some(after) = self.nodes.get_mut(node.after as usize) {
            after.before = rest;
        }
        if let Some(node) = self.nodes.get_mut(piece.0 as usize) {
            (node.bytes, node.after) = (bytes, rest);
        }
        Piece(rest)
    }

    /// Frees a used block and merges it with adjacent free blocks. Returns the merged block.
    pub fn release(&mut self, piece: Piece) -> Piece {
        let whole = self.merged(piece, Heap::is_free, Heap::unlist);
        self.list(whole);
        whole
    }

    /// Merges a block with the blocks before and after it that are of a kind. `unlist` takes these
    /// out of their list.
    fn merged(
        &mut self,
        piece: Piece,
        is_of_kind: fn(&Heap, Piece) -> bool,
        unlist: fn(&mut Heap, Piece),
    ) -> Piece {
        let (before, after) = (self.before(piece), self.after(piece));
        let mut whole = piece;
        if is_of_kind(self, before) {
            whole = before;
            unlist(self, before);
            self.join(before, piece);
        }
        if is_of_kind(self, after) {
            unlist(self, after);
            self.join(whole, after);
        }
        whole
    }

    /// Extends a region at its last block. The new part is a used block of its own.
    pub fn extend(&mut self, last: Piece, bytes: u64) -> Piece {
        let Some(node) = self.node(last).copied() else {
            return Piece::NONE;
        };
        let address = node.address.saturating_add(node.bytes);
        self.next = self
            .next
            .max(address.saturating_add(bytes).saturating_add(APART));
        let new = self.put(Node {
            address,
            bytes,
            before: last.0,
            after: NONE,
            is_free: false,
            ..node
        });
        if let Some(node) = self.nodes.get_mut(last.0 as usize) {
            node.after = new;
        }
        Piece(new)
    }

    /// True if a block is free; false for [`Piece::NONE`].
    pub fn is_free(&self, piece: Piece) -> bool {
        self.node(piece).is_some_and(|node| node.is_free)
    }

    /// True if a block is its whole region.
    pub fn is_region(&self, piece: Piece) -> bool {
        let node = self.node(piece);
        node.is_some_and(|node| node.before == NONE && node.after == NONE)
    }

    /// Drops the region of a free block that is its whole region.
    pub fn drop_region(&mut self, piece: Piece) {
        if self.is_region(piece) && self.is_free(piece) {
            self.dropped.push((self.address(piece), self.bytes(piece)));
            self.unlist(piece);
            self.unused.push(piece.0);
        }
    }

    /// Takes the addresses and bytes that lost their memory since the last call: regions that were
    /// dropped, and unmapped parts.
    pub fn dropped(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.dropped)
    }

    /// Address and bytes of the region of a block.
    pub fn region(&self, piece: Piece) -> (u64, u64) {
        let (mut first, mut last) = (piece, piece);
        while self.before(first) != Piece::NONE {
            first = self.before(first);
        }
        while self.after(last) != Piece::NONE {
            last = self.after(last);
        }
        let base = self.address(first);
        (base, self.address(last) + self.bytes(last) - base)
    }

    /// Returns all free blocks, by group and address.
    pub fn free(&self) -> Vec<Piece> {
        let all = self.by_size.iter();
        let mut all: Vec<(u32, u64, u32)> = all
            .map(|&(group, _, address, id)| (group, address, id))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(.., id)| Piece(id)).collect()
    }

    /// Returns the group of a block.
    pub fn group(&self, piece: Piece) -> u32 {
        self.node(piece).map_or(0, |node| node.group)
    }

    /// Returns the address of a block.
    pub fn address(&self, piece: Piece) -> u64 {
        self.node(piece).map_or(0, |node| node.address)
    }

    /// The block before a block in its region.
    pub fn before(&self, piece: Piece) -> Piece {
        self.node(piece)
            .map_or(Piece::NONE, |node| Piece(node.before))
    }

    /// The block after a block in its region.
    pub fn after(&self, piece: Piece) -> Piece {
        self.node(piece)
            .map_or(Piece::NONE, |node| Piece(node.after))
    }

    /// True if a block has no memory; false for [`Piece::NONE`].
    pub fn is_unmapped(&self, piece: Piece) -> bool {
        self.node(piece).is_some_and(|node| !node.is_mapped)
    }

    /// Blocks of a group without memory, the lowest first.
    pub fn unmapped(&self, group: u32) -> impl Iterator<Item = Piece> + '_ {
        let all = self
            .unmapped
            .range((group, 0, 0)..=(group, u64::MAX, u32::MAX));
        all.map(|&(.., id)| Piece(id))
    }

    /// Removes the memory of a used block and merges it with adjacent unmapped blocks.
    pub fn unmap(&mut self, piece: Piece) {
        self.dropped.push((self.address(piece), self.bytes(piece)));
        let whole = self.merged(piece, Heap::is_unmapped, Heap::unlist_unmapped);
        if let Some(node) = self.nodes.get_mut(whole.0 as usize) {
            (node.is_mapped, node.is_free) = (false, false);
            self.unmapped.insert((node.group, node.address, whole.0));
        }
    }

    /// Maps memory to the first `bytes` bytes of an unmapped block, which becomes used.
    pub fn map(&mut self, piece: Piece, bytes: u64) {
        if !self.is_unmapped(piece) {
            return;
        }
        self.unlist_unmapped(piece);
        let rest = self.cut(piece, bytes);
        if let Some(node) = self.nodes.get_mut(piece.0 as usize) {
            node.is_mapped = true;
        }
        if let Some(node) = self.nodes.get_mut(rest.0 as usize) {
            self.unmapped.insert((node.group, node.address, rest.0));
        }
    }

    fn unlist_unmapped(&mut self, piece: Piece) {
        if let Some(node) = self.node(piece) {
            let key = (node.group, node.address, piece.0);
            self.unmapped.remove(&key);
        }
    }

    fn node(&self, piece: Piece) -> Option<&Node> {
        self.nodes.get(piece.0 as usize)
    }

    fn put(&mut self, node: Node) -> u32 {
        if let Some(id) = self.unused.pop() {
            if let Some(place) = self.nodes.get_mut(id as usize) {
                *place = node;
            }
            return id;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    /// Merges the block `after` into the block before it.
    fn join(&mut self, piece: Piece, after: Piece) {
        let Some(gone) = self.node(after).copied() else {
            return;
        };
        if let Some(node) = self.nodes.get_mut(piece.0 as usize) {
            node.bytes = node.bytes.saturating_add(gone.bytes);
            node.after = gone.after;
        }
        if let Some(next) = self.nodes.get_mut(gone.after as usize) {
            next.before = piece.0;
        }
        self.unused.push(after.0);
    }

    fn list(&mut self, piece: Piece) {
        if let Some(node) = self.nodes.get_mut(piece.0 as usize) {
            node.is_free = true;
            self.by_size
                .insert((node.group, node.bytes, node.address, piece.0));
            if let Some(by_address) = &mut self.by_address {
                by_address.insert(node.group, node.address, node.bytes, piece.0);
            }
        }
    }

    fn unlist(&mut self, piece: Piece) {
        if let Some(node) = self.nodes.get_mut(piece.0 as usize) {
            node.is_free = false;
            self.by_size
                .remove(&(node.group, node.bytes, node.address, piece.0));
            if let Some(by_address) = &mut self.by_address {
                by_address.remove(node.group, node.address);
            }
        }
    }
}
