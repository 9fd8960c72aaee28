//! One segment: its pieces, and the tensors in it.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::pages::PAGE;
use super::piece::Piece;
use crate::rules;

/// A range of addresses that the allocator above cuts up, in two lines of the processor's cache.
#[repr(align(64))]
pub(super) struct Segment {
    pub base: u64,
    /// Bytes of its addresses, of which parts are mapped.
    pub range: u64,
    /// True if this library reserved the addresses and frees them. False: the allocator above does.
    pub is_ours: bool,
    /// Bytes up to the end of its last part.
    pub bytes: u64,
    /// Number that no other segment has or had.
    pub number: u64,
    pages: Vec<Page>,
    /// Bytes of each live tensor, by its address.
    pub tensors: FxHashMap<u64, u64>,
    /// True if pages that have memory keep it.
    pub is_pinned: bool,
    /// True if a tensor may have a page without memory.
    pub is_incomplete: bool,
    /// True until a tensor is announced at the beginning: the allocator may be one that announces
    /// none.
    pub is_unproven: bool,
}

/// Piece of memory that a page is in. Two pages share a line of the processor's cache.
#[derive(Clone, Copy, Default)]
#[repr(align(32))]
struct Page {
    /// The piece that begins here.
    piece: Option<Piece>,
    /// Number of pages from the first one of its piece to this. `None`: it has no memory.
    behind: Option<u8>,
    /// True if tensors may be there: the allocator above has not unmapped it (`ranges.rs`).
    is_mapped: bool,
}

const _: () = assert!(size_of::<Segment>() == 128 && size_of::<Page>() == 32);

impl Segment {
    /// Creates a segment in a range of addresses, without parts. It has its first page, by which it
    /// is found.
    pub fn new(base: u64, range: u64, number: u64) -> Self {
        Segment {
            base,
            range,
            is_ours: false,
            bytes: 0,
            number,
            pages: vec![Page::default()],
            tensors: FxHashMap::default(),
            is_pinned: false,
            is_incomplete: false,
            is_unproven: false,
        }
    }

    /// Extends it to this many bytes, if it has fewer, without memory. The new pages are not mapped.
    pub fn grow(&mut self, bytes: u64) {
        if bytes <= self.bytes {
            return;
        }
        let pages = bytes.div_ceil(PAGE) as usize;
        self.bytes = bytes;
        self.pages.resize(pages, Page::default());
    }

    /// Notes that pages are mapped, or no longer.
    pub fn set_mapped(&mut self, pages: Range<usize>, is_mapped: bool) {
        let pages = self.pages[pages].iter_mut();
        pages.for_each(|page| page.is_mapped = is_mapped);
    }

    /// True if all these pages are mapped.
    pub fn are_mapped(&self, pages: Range<usize>) -> bool {
        self.pages[pages].iter().all(|page| page.is_mapped)
    }

    /// True if any of these pages is mapped.
    pub fn any_mapped(&self, pages: Range<usize>) -> bool {
        self.pages[pages].iter().any(|page| page.is_mapped)
    }

    /// Bytes where tensors may be.
    pub fn mapped_bytes(&self) -> u64 {
        let mapped = self.pages.iter().filter(|page| page.is_mapped);
        self.bytes.min(mapped.count() as u64 * PAGE)
    }

    /// Indices of all its pages.
    pub fn all(&self) -> Range<usize> {
        0..self.pages.len()
    }

    /// First address of a page.
    pub fn address(&self, index: usize) -> u64 {
        self.base + index as u64 * PAGE
    }

    /// Index of the page that an address is on.
    pub fn index(&self, address: u64) -> usize {
        ((address - self.base) / PAGE) as usize
    }

    /// Pages that these bytes are on.
    pub fn pages_of(&self, address: u64, bytes: u64) -> Range<usize> {
        let end = (address - self.base + bytes).div_ceil(PAGE) as usize;
        self.index(address)..end.min(self.pages.len())
    }

    /// First address behind its last page.
    pub fn end(&self) -> u64 {
        self.address(self.pages.len())
    }

    /// True if its addresses contain these bytes.
    pub fn has(&self, address: u64, bytes: u64) -> bool {
        address >= self.base && address - self.base + bytes <= self.range
    }

    /// Counts live tensors on pages that just got memory. The memory was obtained for `new` of
    /// them.
    pub fn tensors_on(&self, pages: Range<usize>, new: u32) -> u32 {
        if !self.is_incomplete {
            return new;
        }
        let (first, end) = (self.address(pages.start), self.address(pages.end));
        let is_there = |(at, bytes): &(&u64, &u64)| **at < end && *at + *bytes > first;
        self.tensors.iter().filter(is_there).count() as u32
    }

    /// True if pages that have memory keep it.
    pub fn keeps_all(&self) -> bool {
        self.is_pinned || rules::must_keep_unproven(self.is_unproven)
    }

    /// True if the page has memory.
    pub fn has_memory(&self, index: usize) -> bool {
        self.pages[index].behind.is_some()
    }

    /// True if a mapped page has no memory.
    pub fn lacks_memory(&self, index: usize) -> bool {
        self.pages[index].is_mapped && !self.has_memory(index)
    }

    /// Number of mapped pages without memory among these.
    pub fn missing(&self, pages: Range<usize>) -> usize {
        pages.filter(|page| self.lacks_memory(*page)).count()
    }

    /// Finds the first run of mapped pages without memory among these.
    pub fn gap(&self, pages: Range<usize>) -> Option<Range<usize>> {
        let mut start = pages.start;
        while start < pages.end && !self.lacks_memory(start) {
            start = self
                .piece_on(start)
                .map_or(start + 1, |(first, piece)| first + piece.pages());
        }
        let end = (start..pages.end).find(|page| !self.lacks_memory(*page));
        let end = end.unwrap_or(pages.end);
        (start < end).then_some(start..end)
    }

    /// Returns all pieces, each with its first page.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, &Piece)> {
        let all = self.pages.iter().enumerate();
        all.filter_map(|(first, page)| Some((first, page.piece.as_ref()?)))
    }

    /// Returns all pieces, to be changed.
    pub fn pieces_mut(&mut self) -> impl Iterator<Item = &mut Piece> {
        self.pages.iter_mut().filter_map(|page| page.piece.as_mut())
    }

    /// Finds the piece that a page belongs to, with its first page.
    fn piece_on(&self, index: usize) -> Option<(usize, &Piece)> {
        let first = index - usize::from(self.pages.get(index)?.behind?);
        Some((first, self.pages[first].piece.as_ref()?))
    }

    /// Finds the first piece on these pages, with its first page.
    pub fn next_piece(&mut self, pages: Range<usize>) -> Option<(usize, &mut Piece)> {
        let mut of_pages = self.pages.get(pages.clone())?.iter();
        let found = of_pages.position(|page| page.behind.is_some())?;
        let page = pages.start + found;
        let first = page - usize::from(self.pages[page].behind?);
        Some((first, self.pages[first].piece.as_mut()?))
    }

    /// True if a piece on these pages must keep its memory.
    pub fn must_keep(&mut self, pages: Range<usize>) -> bool {
        let mut at = pages.start;
        while let Some((first, piece)) = self.next_piece(at..pages.end) {
            if piece.must_keep() {
                return true;
            }
            at = first + piece.pages();
        }
        false
    }

    /// Notes that memory is mapped from this page on.
    pub fn put(&mut self, first: usize, piece: Piece) {
        for (behind, page) in self.pages[first..first + piece.pages()]
            .iter_mut()
            .enumerate()
        {
            page.behind = Some(behind as u8);
        }
        self.pages[first].piece = Some(piece);
    }

    /// Removes the piece at an address, which was unmapped.
    pub fn take(&mut self, address: u64) {
        let first = self.index(address);
        if let Some(piece) = self.pages[first].piece.take() {
            let pages = self.pages[first..first + piece.pages()].iter_mut();
            pages.for_each(|page| page.behind = None);
        }
    }
}
