//! Ranges: segments in addresses that the allocator above reserved itself (PyTorch's expandable
//! segments).
//!
//! The allocator maps parts of a range where it needs room, and unmaps parts that it does not use.
//! A mapped part has memory only at tensors, as a segment. The memory of an unmapped part is spare,
//! except in a piece that reaches into a mapped part and must keep it there.

use std::ops::Range;

use super::device::Elastic;
use super::pages::PAGE;
use super::request::Wanted;
use super::reserved::Reserved;
use super::segment::Segment;
use super::state::State;
use crate::driver::Driver;
use crate::rules;

impl<D: Driver> Elastic<D> {
    /// Adds a range. If the caller is not `is_trusted` to announce its tensors, mapped parts get
    /// memory at once. They keep it until a tensor is announced at the beginning of the range.
    /// False if the range does not begin on a [`PAGE`].
    pub fn add_range(&self, base: u64, bytes: u64, is_trusted: bool) -> bool {
        let mut state = self.lock();
        if !base.is_multiple_of(PAGE) {
            return false;
        }
        state.reserved.push(Reserved {
            base,
            bytes,
            is_trusted,
        });
        true
    }

    /// True if there is a range.
    pub fn has_ranges(&self) -> bool {
        !self.lock().reserved.is_empty()
    }

    /// True if a range contains these bytes.
    pub fn has_range(&self, address: u64, bytes: u64) -> bool {
        let state = self.lock();
        state.reserved.iter().any(|range| range.has(address, bytes))
    }

    /// True if `bytes` more bytes of a range may be mapped: a tensor there can have memory. `before`
    /// were promised and are not mapped yet.
    ///
    /// Only the last part of what is promised for a tensor may be larger than the tensor.
    pub fn may_map(&self, before: u64, bytes: u64) -> bool {
        let state = self.lock();
        let least = if state.keeps_ranges() { bytes } else { PAGE };
        self.has_room(&state, before + least)
    }

    /// Maps a part of a range, without memory unless the range keeps all its memory. False if there
    /// is too little for that; the part is not mapped then. `None`: the part is in no range.
    pub fn map(&self, address: u64, bytes: u64) -> Option<bool> {
        let mut state = self.lock();
        let mut ranges = state.reserved.iter();
        let Reserved {
            base, is_trusted, ..
        } = *ranges.find(|range| range.has(address, bytes))?;
        let end = address - base + bytes;
        match state.segments.get(base) {
            None => {
                state.last += 1;
                let mut segment = Segment::new(base, end, state.last, !is_trusted);
                segment.set_mapped(segment.all(), false);
                state.segments.insert(segment);
            }
            Some(segment) if segment.bytes < end => state.segments.grow(base, end),
            Some(_) => {}
        }
        let is_off = state.is_off;
        let segment = state.segments.get_mut(base)?;
        let pages = segment.pages_of(address, bytes);
        let is_new = |page: &usize| !segment.are_mapped(*page..page + 1);
        let new: Vec<usize> = pages.clone().filter(is_new).collect();
        segment.set_mapped(pages.clone(), true);
        if !segment.keeps_all() && !is_off {
            return Some(true);
        }
        let backed = state.supply(self.pages(), base, pages, Wanted::UNNEEDED);
        if backed.missing == 0 {
            return Some(true);
        }
        for page in new {
            self.leave_part(&mut state, base, page..page + 1);
        }
        Some(false)
    }

    /// Unmaps a part of a range. Its memory is spare, and is given back to the driver when it decays.
    /// Memory that pieces must keep is given back at once, after all work that may use it.
    /// `None`: the part is in no range, or not mapped.
    ///
    /// # Errors
    /// The driver's, if that work cannot be waited for. The part stays mapped.
    pub fn unmap(&self, address: u64, bytes: u64) -> Option<Result<(), D::Error>> {
        let mut state = self.lock();
        let is_off = state.is_off;
        let segment = state.segments.around_mut(address)?;
        let (base, pages) = (segment.base, segment.pages_of(address, bytes));
        let must_keep = is_off || segment.keeps_all() || segment.must_keep(pages.clone());
        let mut ranges = state.reserved.iter();
        ranges.find(|range| range.base == base)?;
        if must_keep && let Err(error) = self.finish(&mut state) {
            return Some(Err(error));
        }
        if must_keep {
            self.leave_part(&mut state, base, pages);
        } else if let Some(segment) = state.segments.get_mut(base) {
            segment.set_mapped(pages, false);
        }
        Some(Ok(()))
    }

    /// Unmaps pages of a range.
    fn leave_part(&self, state: &mut State<D::Event>, base: u64, pages: Range<usize>) {
        if let Some(segment) = state.segments.get_mut(base) {
            segment.set_mapped(pages.clone(), false);
        }
        self.leave(state, base, pages);
    }

    /// Removes the range that begins at an address, after all work that may use it. `None`: no range
    /// begins there.
    ///
    /// # Errors
    /// The driver's, if that work cannot be waited for. The range stays.
    pub fn remove_range(&self, base: u64) -> Option<Result<(), D::Error>> {
        let mut state = self.lock();
        let mut ranges = state.reserved.iter();
        ranges.find(|range| range.base == base)?;
        if let Err(error) = self.finish(&mut state) {
            return Some(Err(error));
        }
        self.remove(&mut state, base);
        state.reserved.retain(|range| range.base != base);
        Some(Ok(()))
    }
}

impl<E: Copy> State<E> {
    /// True if parts of ranges get memory when they are mapped.
    fn keeps_ranges(&self) -> bool {
        let keeps = |range: &Reserved| match self.segments.get(range.base) {
            Some(segment) => segment.keeps_all(),
            None => rules::must_keep_unproven(!range.is_trusted),
        };
        self.is_off || self.reserved.iter().any(keeps)
    }
}
