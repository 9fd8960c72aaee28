//! Addresses of segments: they are reserved, mapped and unmapped part by part, and freed.
//!
//! There are two kinds of segments, by who reserves and frees the addresses:
//!
//! * A *default segment* is in addresses of this library. It is mapped as a whole, and at once.
//! * A *range* is in addresses of the allocator above (PyTorch's expandable segments). That maps
//!   parts where it needs room, and unmaps parts that it does not use.
//!
//! A mapped part has memory only at tensors. The memory of an unmapped part is spare, except in a
//! piece that reaches into a mapped part and must keep it there.

use std::ops::Range;

use super::device::Elastic;
use super::pages::PAGE;
use super::piece::Piece;
use super::request::Wanted;
use super::segment::Segment;
use super::state::State;
use super::types::Trouble;
use crate::driver::Driver;
use crate::rules;

impl<D: Driver> Elastic<D> {
    /// Makes a default segment, whose first tensor has up to `first` bytes. For `is_trusted` see
    /// [`Elastic::add_range`]. `None`, for one of these reasons:
    /// - That tensor does not fit beside all memory in use, as the driver would answer.
    /// - There is too little memory for all of the segment, which needs that if it is not trusted.
    /// - An announcement was wrong.
    /// - The driver refuses, or its addresses do not begin on a page.
    pub fn segment(&self, bytes: u64, first: u64, is_trusted: bool) -> Option<u64> {
        let mut state = self.lock();
        let bytes = bytes.max(1);
        let range = bytes.next_multiple_of(PAGE);
        let wanted = first.clamp(1, range).next_multiple_of(PAGE);
        if state.is_off || !self.has_room(&state, wanted) {
            return None;
        }
        let base = self.pages().reserve(range).ok()?;
        if !state.add(base, range, (true, is_trusted)) {
            self.pages().unreserve(base, range);
            return None;
        }
        if !self.map_part(&mut state, base, base, bytes) {
            self.remove(&mut state, base);
            return None;
        }
        Some(base)
    }

    /// Adds a range. If the caller is not `is_trusted` to announce its tensors, mapped parts get
    /// memory at once. They keep it until a tensor is announced at the beginning of the range.
    /// False if the range does not begin on a [`PAGE`].
    pub fn add_range(&self, base: u64, bytes: u64, is_trusted: bool) -> bool {
        self.lock().add(base, bytes, (false, is_trusted))
    }

    /// True if there is a range.
    pub fn has_ranges(&self) -> bool {
        self.lock().ranges().next().is_some()
    }

    /// True if a range contains these bytes.
    pub fn has_range(&self, address: u64, bytes: u64) -> bool {
        self.lock().ranges().any(|range| range.has(address, bytes))
    }

    /// True if `bytes` more bytes of a range may be mapped: a tensor there can have memory. `before`
    /// were promised and are not mapped yet.
    ///
    /// Only the last part of what is promised for a tensor may be larger than the tensor.
    pub fn may_map(&self, before: u64, bytes: u64) -> bool {
        let state = self.lock();
        let keeps_all = state.is_off || state.ranges().any(Segment::keeps_all);
        self.has_room(&state, before + if keeps_all { bytes } else { PAGE })
    }

    /// True if a tensor of this size fits beside the memory in use, also of other processes that
    /// free some.
    fn has_room(&self, state: &State<D>, bytes: u64) -> bool {
        let fits = || {
            let room = self.pages().room();
            let fits = room >= bytes || room.saturating_add(state.available()) >= bytes;
            rules::may_have_segment(fits)
        };
        let missing = || bytes.saturating_sub(state.available());
        fits()
            || self.pages().make_room() && fits()
            || self.pages().make_room_elsewhere(missing()) && fits()
    }

    /// Maps a part of a range, without memory unless the range keeps all its memory. False if there
    /// is too little for that; the part is not mapped then. `None`: the part is in no range.
    pub fn map(&self, address: u64, bytes: u64) -> Option<bool> {
        let mut state = self.lock();
        let base = state.ranges().find(|range| range.has(address, bytes))?.base;
        Some(self.map_part(&mut state, base, address, bytes))
    }

    /// Maps a part of a segment, as [`Elastic::map`]. False: it is not mapped.
    fn map_part(&self, state: &mut State<D>, base: u64, address: u64, bytes: u64) -> bool {
        let is_off = state.is_off;
        let Some(segment) = state.segments.get_mut(base) else {
            return false;
        };
        segment.grow(address - base + bytes);
        let pages = segment.pages_of(address, bytes);
        let is_new = |page: &usize| !segment.are_mapped(*page..page + 1);
        let new: Vec<usize> = pages.clone().filter(is_new).collect();
        segment.set_mapped(pages.clone(), true);
        if !segment.keeps_all() && !is_off {
            return true;
        }
        let backed = state.supply(self.pages(), base, pages, Wanted::UNNEEDED);
        if backed.missing == 0 {
            return true;
        }
        for page in new {
            self.unmap_part(state, base, page..page + 1);
        }
        false
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
        let segment = state.segments.around_mut(address);
        let segment = segment.filter(|segment| !segment.is_ours)?;
        let (base, pages) = (segment.base, segment.pages_of(address, bytes));
        if !is_off && !segment.keeps_all() && !segment.must_keep(pages.clone()) {
            segment.set_mapped(pages, false);
            return Some(Ok(()));
        }
        let finished = self.finish(&mut state);
        Some(finished.map(|()| self.unmap_part(&mut state, base, pages)))
    }

    /// Unmaps pages that no work uses, and takes their memory.
    fn unmap_part(&self, state: &mut State<D>, base: u64, pages: Range<usize>) {
        if let Some(segment) = state.segments.get_mut(base) {
            segment.set_mapped(pages.clone(), false);
        }
        self.leave(state, base, pages);
    }

    /// Frees a default segment, or removes a range, after all work that may use it. `leaves` gets its
    /// addresses before another segment can have them. Returns the first error in the announcements,
    /// once. `None`: no such segment begins there.
    ///
    /// # Errors
    /// The driver's, if that work cannot be waited for. The segment stays.
    pub fn free(
        &self,
        base: u64,
        is_range: bool,
        leaves: impl FnOnce(Range<u64>),
    ) -> Option<Result<Option<Trouble>, D::Error>> {
        let mut state = self.lock();
        let segment = state.segments.get(base);
        let segment = segment.filter(|segment| segment.is_ours != is_range)?;
        let (addresses, is_live) = (base..segment.end(), !segment.tensors.is_empty());
        if let Err(error) = self.finish(&mut state) {
            return Some(Err(error));
        }
        leaves(addresses);
        let trouble = (is_live && !state.is_off).then_some(Trouble::FreedLive(base));
        self.remove(&mut state, base);
        if trouble.is_some() {
            state.switch_off(self.pages());
        }
        Some(Ok(trouble))
    }

    /// Waits for all work that may use segments.
    fn finish(&self, state: &mut State<D>) -> Result<(), D::Error> {
        if rules::must_wait_for_segment() {
            self.pages().drain()?;
        }
        let now = state.clock;
        state.fences.all_over(self.pages(), now);
        Ok(())
    }

    /// Removes a segment that no work uses, and its addresses if they are ours.
    pub(super) fn remove(&self, state: &mut State<D>, base: u64) {
        let Some(pages) = state.segments.get(base).map(Segment::all) else {
            return;
        };
        let is_clear = self.leave(state, base, pages);
        let gone = state.segments.remove(base);
        if let Some(gone) = gone.filter(|gone| is_clear && gone.is_ours) {
            self.pages().unreserve(base, gone.range);
        }
    }

    /// Takes the memory of pages that no work uses. Memory that no other piece is mapped at is given
    /// back to the driver. A piece stays if it must keep its memory and also has mapped pages
    /// beside these. False if the driver refuses to unmap some.
    fn leave(&self, state: &mut State<D>, base: u64, pages: Range<usize>) -> bool {
        let mut is_clear = true;
        let mut at = pages.start;
        while let Some(segment) = state.segments.get_mut(base)
            && let Some((first, piece)) = segment.next_piece(at..pages.end)
        {
            let piece = *piece;
            at = first + piece.pages();
            let beside = segment.any_mapped(first..pages.start.max(first))
                || segment.any_mapped(pages.end.min(at)..at);
            let must_keep = piece.must_keep() || segment.keeps_all() || state.is_off;
            if rules::must_stay_beside(beside && must_keep) {
                continue;
            }
            let address = segment.address(first);
            segment.take(address);
            if state.leave_for_good(self.pages(), address, piece.memory) {
                continue;
            }
            is_clear = false;
            // It is still mapped there, for the next tensor at it.
            if let Some(segment) = state.segments.get_mut(base) {
                let piece = Piece {
                    owns_memory: false,
                    tensors: 0,
                    is_pinned: false,
                    ..piece
                };
                segment.put(first, piece);
            }
        }
        is_clear
    }
}

impl<D: Driver> State<D> {
    /// Adds a segment without parts. False if it does not begin on a page: segments are found by
    /// their pages.
    fn add(&mut self, base: u64, range: u64, (is_ours, is_trusted): (bool, bool)) -> bool {
        if !base.is_multiple_of(PAGE) {
            return false;
        }
        self.last += 1;
        let mut segment = Segment::new(base, range, self.last);
        (segment.is_ours, segment.is_unproven) = (is_ours, !is_trusted);
        self.segments.insert(segment);
        true
    }

    /// Ranges of the allocator above.
    fn ranges(&self) -> impl Iterator<Item = &Segment> {
        self.segments.values().filter(|segment| !segment.is_ours)
    }
}
