//! Large pieces that a request would cut. What is left of a piece when a block takes a part of it can neither move nor go
//! back, so a large piece that is free goes back as a whole, and the request gets one of its own size: 50 µs (measured on an
//! H100) for what might be held for as long as the block lives.

use super::block::Id;
use super::driver::Driver;
use super::mapping::{Mapping, Mode};
use super::pool::StreamPool;
use super::space::Piece;
use super::state::State;
use super::window::{Interval, Site};
use crate::handles::Stream;
use crate::policy::Policy;
use crate::rules;

/// Pages of the largest piece that may be cut.
const FINE: u64 = 8;
/// Pieces that go back for one request, at most: its place has two edges, and may become another one once.
const MOST: usize = 4;

impl<E: Copy> State<E> {
    /// Bytes of the largest piece that may be cut.
    pub fn fine(&self) -> u64 {
        self.settings.page.saturating_mul(FINE)
    }

    /// The large piece that has an address within, if it lies between two others and may go back.
    fn cut_at(&self, edge: u64, (low, high): (u64, u64)) -> Option<(u64, Piece)> {
        let (at, piece) = self.space.pieces.range(..edge).next_back()?;
        let end = at + piece.bytes;
        let is_large = piece.bytes > self.fine();
        let is_cut = end > edge && *at >= low && end <= high;
        (is_large && is_cut && !rules::must_not_evict(piece.pinned)).then_some((*at, *piece))
    }

    /// The large pieces that a request would cut at a place in free addresses.
    pub fn cuts(
        &self,
        interval: &Interval,
        start: u64,
        need: u64,
    ) -> impl Iterator<Item = (u64, Piece)> + use<E> {
        let page = self.settings.page;
        let extent = interval.extent();
        let first = self.cut_at(start / page * page, extent);
        let last = self.cut_at((start + need).next_multiple_of(page), extent);
        first
            .into_iter()
            .chain(last.filter(|last| Some(*last) != first))
    }

    /// Whether a request that gets the beginning of a free block cuts a large piece.
    #[inline]
    pub fn would_cut(&self, id: Id, need: u64) -> bool {
        let block = self.slab.at(id);
        let could_hold_one = block.size > self.fine();
        could_hold_one && block.size > need && !block.small && self.cuts_block(id, need)
    }

    fn cuts_block(&self, id: Id, need: u64) -> bool {
        if self.settings.policy != Policy::Vmm || self.follower.is_some() {
            return false;
        }
        let block = self.slab.at(id);
        let edge = (block.address + need).next_multiple_of(self.settings.page);
        self.cut_at(edge, (block.address, block.end())).is_some()
    }

    /// As [`State::claim`], of the end of a free block: the block there. `None`: that cuts a large piece, too.
    #[cold]
    pub fn claim_end(&mut self, id: Id, queue: u32, need: u64) -> Option<Id> {
        let block = self.slab.at(id);
        let (extent, before) = ((block.address, block.end()), block.size - need);
        let edge = (block.end() - need) / self.settings.page * self.settings.page;
        if self.cut_at(edge, extent).is_some() {
            return None;
        }
        self.unlist(id);
        let mut end = None;
        self.cut(id, before, |_, rest| end = Some(rest));
        self.list(id);
        self.goes_to(end?, queue);
        end
    }

    /// Whether the best block for a request has a piece that it would cut and that may go back.
    pub fn is_better_made(&mut self, queue: u32, bytes: u64) -> bool {
        let need = self.block_bytes(bytes);
        let best = self.best(queue, need, u32::MAX);
        best.is_some_and(|id| self.would_cut(id, need))
    }

    /// A large piece that a request would cut where it is to go and whose work is over, as a busy block.
    pub fn cut_out(&mut self, site: &Site, need: u64) -> Option<(Id, u64, Piece)> {
        if site.is_aimed || site.small {
            return None;
        }
        for (address, piece) in self.cuts(&site.interval, site.start, need) {
            if let Some(block) = self.around(site.interval.first, address)
                && rules::may_evict(self.is_complete(block))
                && self.slab.at(block).end() >= address + piece.bytes
            {
                let id = self.carve(address, address + piece.bytes, block)?;
                return Some((id, address, piece));
            }
        }
        None
    }
}

impl<D: Driver> StreamPool<D> {
    /// Where a request goes: what it maps there. The large pieces that it would cut have gone back before. `None`: no addresses
    /// left.
    pub(super) fn place(
        &self,
        driver: &D,
        stream: Stream,
        need: u64,
        mode: Mode,
    ) -> Option<(u32, Mapping)> {
        let mut left = MOST;
        loop {
            let mut state = self.state.lock();
            let queue = state.queues.of(stream);
            let site = state.site(queue, need)?;
            let cut = (left > 0).then(|| state.cut_out(&site, need)).flatten();
            let Some((id, address, piece)) = cut else {
                return Some((queue, state.mapping(queue, need, site, mode)?));
            };
            drop(state);
            let gone = self.end_piece(driver, address, &piece);
            let mut state = self.state.lock();
            if gone {
                state.evicted(id, address, piece);
                left -= 1;
            } else {
                state.insert(id);
                left = 0;
            }
        }
    }
}
