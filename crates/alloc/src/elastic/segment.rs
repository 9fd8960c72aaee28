//! One segment: its pages, and the tensors in it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::driver::{Handle, PAGE};
use crate::rules;

/// One page of a segment.
#[derive(Clone, Copy, Default)]
pub(super) struct Page {
    /// Live tensors that are on it.
    pub tensors: u32,
    /// Its memory.
    pub memory: Option<Handle>,
    /// Its memory stays: a graph may use it without telling.
    pub is_pinned: bool,
    /// When the last tensor on it died; 0: it has one, or never had.
    pub emptied: u64,
}

/// A range of addresses that the allocator above cuts up.
pub(super) struct Segment {
    pub base: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// No other segment has or had it.
    pub number: u64,
    pub pages: Vec<Page>,
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

    /// Whether a page has memory that could serve another page, once its work is over.
    pub fn is_hollow(&self, index: usize) -> bool {
        let page = &self.pages[index];
        page.memory.is_some() && page.tensors == 0 && !page.is_pinned && !self.keeps_all()
    }
}
