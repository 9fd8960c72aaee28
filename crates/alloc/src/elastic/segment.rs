//! One segment: its pages, and the tensors in it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::driver::{Handle, PAGE};
use super::piece::{self, Piece};
use crate::rules;

/// One page of a segment.
#[derive(Clone, Copy, Default)]
pub(super) struct Page {
    /// Live tensors that are on it.
    pub tensors: u32,
    /// The page that the piece begins on which is its memory.
    pub piece: Option<usize>,
    /// Its memory stays: a graph may use it without telling.
    pub is_pinned: bool,
}

impl Page {
    fn is_kept(&self) -> bool {
        self.tensors > 0 || self.is_pinned
    }
}

/// A range of addresses that the allocator above cuts up.
pub(super) struct Segment {
    pub base: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// No other segment has or had it.
    pub number: u64,
    pub pages: Vec<Page>,
    /// Its memory: each piece at the page that it begins on, which an announcement finds without a search.
    pub pieces: Vec<Option<Piece>>,
    /// Live tensors: address and bytes.
    pub tensors: BTreeMap<u64, u64>,
    /// The memory of all its pages stays.
    pub is_pinned: bool,
    /// No tensor was announced in it yet, and its allocator may be one that announces none.
    pub is_unproven: bool,
}

impl Segment {
    /// The addresses of a page.
    pub fn address(&self, index: usize) -> u64 {
        self.base + index as u64 * PAGE
    }

    /// The pages that bytes are on.
    pub fn pages_of(&self, address: u64, bytes: u64) -> Range<usize> {
        let first = (address - self.base) / PAGE;
        let end = (address - self.base + bytes).div_ceil(PAGE);
        first as usize..end as usize
    }

    /// Bytes of addresses.
    pub fn reserved(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.base..self.base + self.reserved()).contains(&address)
    }

    /// Whether bytes are shared with a live tensor.
    pub fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let before = self.tensors.range(..address + bytes).next_back();
        before.is_some_and(|(at, size)| at + size > address)
    }

    /// Whether the memory of all its pages stays.
    pub fn keeps_all(&self) -> bool {
        self.is_pinned || rules::must_keep_unproven(self.is_unproven)
    }

    /// Its pieces, each with the page that it begins on.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, &Piece)> {
        let all = self.pieces.iter().enumerate();
        all.filter_map(|(first, piece)| Some((first, piece.as_ref()?)))
    }

    /// Changes a page. Returns by how many bytes more memory is kept.
    pub fn change(&mut self, index: usize, change: impl FnOnce(&mut Page)) -> i64 {
        let page = &mut self.pages[index];
        let was_kept = page.is_kept();
        change(page);
        let is_kept = page.is_kept();
        let piece = page.piece.and_then(|first| self.pieces[first].as_mut());
        let Some(piece) = piece.filter(|_| was_kept != is_kept) else {
            return 0;
        };
        let before = piece.kept_bytes();
        if is_kept {
            piece.kept += 1;
            piece.emptied = 0;
        } else {
            piece.kept -= 1;
        }
        piece.kept_bytes() as i64 - before as i64
    }

    /// Memory is there from a page on.
    pub fn put(&mut self, first: usize, memory: Handle) -> Piece {
        let pages = &mut self.pages[first..first + piece::pages_of(memory)];
        pages.iter_mut().for_each(|page| page.piece = Some(first));
        let kept = pages.iter().filter(|page| page.is_kept()).count();
        let piece = Piece {
            memory,
            kept,
            emptied: 0,
        };
        self.pieces[first] = Some(piece);
        piece
    }

    /// The memory that was there from a page on.
    pub fn take(&mut self, first: usize) -> Option<Piece> {
        let piece = self.pieces.get_mut(first)?.take()?;
        let pages = &mut self.pages[first..first + piece::pages_of(piece.memory)];
        pages.iter_mut().for_each(|page| page.piece = None);
        Some(piece)
    }

    /// Whether a piece could serve other pages, once its work is over.
    pub fn is_hollow(&self, piece: &Piece) -> bool {
        piece.kept == 0 && !self.keeps_all()
    }
}
