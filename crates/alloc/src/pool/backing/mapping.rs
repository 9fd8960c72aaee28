//! A request that no free block answers: at which addresses it goes, and which memory comes there.
//!
//! Decided under the lock, carried out without it: what a mapping takes is busy meanwhile. The window is
//! where the fewest bytes are missing. They are filled with new memory as long as the pool holds little
//! more than was ever allocated at once, and with free pieces from elsewhere otherwise: that bounds what
//! is held, and moves little once the pool has seen its peak.

use super::space::Piece;
use super::space::SMALL;
use crate::pool::block::{Id, NIL, State as Is};
use crate::pool::state::State;
use crate::rules;
use crate::size_class;

/// Addresses of a window that lack memory, and what comes there.
pub(in crate::pool) struct Fill {
    pub to: u64,
    pub bytes: u64,
    pub source: PageSource,
}

/// Where memory comes from.
#[derive(Clone, Copy)]
pub(in crate::pool) enum PageSource {
    /// The driver.
    New,
    /// A free piece elsewhere, whose work is over: this block.
    Moved(u64, Id),
    /// A free piece elsewhere, whose work comes before the request's, but is not over.
    Aliased(u64, Id),
}

/// A window and how to fill it.
pub(in crate::pool) struct Mapping {
    /// One busy block, which becomes the request's and perhaps free ones around it.
    pub window: Id,
    /// Where the request's block begins.
    pub start: u64,
    pub need: u64,
    pub fills: Vec<Fill>,
    /// Free pieces that are too large for any gap: they go back to the driver first, for as much new
    /// memory as is needed.
    pub given: Vec<(Id, u64, Piece)>,
}

impl Mapping {
    /// Bytes that the driver is asked for.
    pub fn new_bytes(&self) -> u64 {
        let new = self
            .fills
            .iter()
            .filter(|f| matches!(f.source, PageSource::New));
        new.map(|fill| fill.bytes).sum()
    }
}

/// Free addresses next to each other.
struct Interval {
    first: Id,
    /// Begin, end, whether there is memory.
    parts: Vec<(u64, u64, bool)>,
}

/// How memory is looked for, in the order in which it is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum Mode {
    /// As the pool's size suggests.
    Balanced,
    /// The same, after others gave back what they do not use.
    Again,
    /// The driver has no more: free pieces wherever they are, behind the work that uses them.
    Short,
    /// The same, after that work.
    Late,
    /// New memory, after all that is free went back: large pieces that would be used in part are not in
    /// the way.
    Last,
}

impl Mode {
    pub const ALL: [Mode; 5] = [
        Mode::Balanced,
        Mode::Again,
        Mode::Short,
        Mode::Late,
        Mode::Last,
    ];

    /// Whether the driver has refused already.
    pub fn is_short(self) -> bool {
        matches!(self, Mode::Short | Mode::Late | Mode::Last)
    }
}

impl<E: Copy> State<E> {
    /// Which part of the addresses a request goes to.
    pub fn is_small(&self, need: u64) -> bool {
        need <= SMALL && self.settings.backing.is_pages()
    }

    /// Makes a mapping for a request. `None`: no addresses left.
    pub fn mapping(&mut self, queue: u32, need: u64, mode: Mode) -> Option<Mapping> {
        let small = self.is_small(need);
        let (interval, start, missing) = self.window(queue, need, small)?;
        let page = self.settings.page;
        let grows = !mode.is_short() && self.stats.reserved + missing <= self.budget(need);
        let end = start + need;
        let ahead = if grows {
            self.ahead()
                .min(self.budget(need) - self.stats.reserved - missing)
        } else {
            0
        };
        let gaps: Vec<(u64, u64)> = interval
            .parts
            .iter()
            .filter(|(a, b, mapped)| !mapped && *a < end && start < *b)
            .map(|(a, b, _)| {
                let from = a.max(&(start / page * page)).to_owned();
                let to = end.next_multiple_of(page);
                (from, to.max((from + ahead) / page * page).min(*b))
            })
            .collect();
        let from = gaps.first().map_or(start, |gap| gap.0.min(start));
        let to = gaps.last().map_or(end, |gap| gap.1.max(end));
        let window = self.carve(from, to, interval.first)?;
        self.slab.at_mut(window).small = small;
        let mut donors = if grows {
            Vec::new()
        } else {
            self.donors(queue)
        };
        let mut fills = Vec::new();
        let mut given = Vec::new();
        let mut credit = 0;
        for (from, end) in gaps {
            let mut at = from;
            while at < end {
                let fill = self.fill(&mut donors, at, (at - from, end - at), need);
                at += fill.bytes;
                if !grows && matches!(fill.source, PageSource::New) {
                    if credit < fill.bytes
                        && let Some((id, address, piece)) = self.break_up(&mut donors, fill.bytes)
                    {
                        credit += piece.bytes;
                        given.push((id, address, piece));
                    }
                    credit = credit.saturating_sub(fill.bytes);
                }
                fills.push(fill);
            }
        }
        Some(Mapping {
            window,
            start,
            need,
            fills,
            given,
        })
    }

    /// The next piece of a gap, after `done` bytes of it and before `room` more, for a request of `need`: the largest donor that
    /// fits, or new memory.
    fn fill(
        &mut self,
        donors: &mut Vec<(u64, Piece, Id)>,
        to: u64,
        (done, room): (u64, u64),
        need: u64,
    ) -> Fill {
        while let Some(at) = donors.iter().rposition(|(_, piece, _)| piece.bytes <= room) {
            let (address, piece, block) = donors.remove(at);
            // The block may have been cut when another piece was taken from it.
            let Some(block) = self.around(block, address) else {
                continue;
            };
            let complete = rules::may_move(self.is_complete(block));
            let Some(block) = self.carve(address, address + piece.bytes, block) else {
                continue;
            };
            let bytes = piece.bytes;
            let source = if complete {
                PageSource::Moved(address, block)
            } else {
                PageSource::Aliased(address, block)
            };
            return Fill { to, bytes, source };
        }
        let bytes = self.piece_size(need, done, room);
        Fill {
            to,
            bytes,
            source: PageSource::New,
        }
    }

    /// The smallest donor of more than `bytes` bytes, if it can go back.
    fn break_up(
        &mut self,
        donors: &mut Vec<(u64, Piece, Id)>,
        bytes: u64,
    ) -> Option<(Id, u64, Piece)> {
        let all = donors.iter().enumerate();
        let (at, _) = all
            .filter(|(_, (_, piece, _))| piece.bytes > bytes)
            .min_by_key(|(_, (_, piece, id))| (!self.is_complete(*id), piece.bytes))?;
        let (address, piece, block) = donors.remove(at);
        let block = self.around(block, address)?;
        let block = self.carve(address, address + piece.bytes, block)?;
        Some((block, address, piece))
    }

    /// The free block at an address, from one that was there before it was cut.
    fn around(&self, from: Id, address: u64) -> Option<Id> {
        let mut id = from;
        while id != NIL && self.slab.at(id).end() <= address {
            id = self.slab.at(id).right;
        }
        (id != NIL && self.slab.at(id).state == Is::Free).then_some(id)
    }

    /// Free pieces that the queue may use, those that are to be taken first last.
    fn donors(&mut self, queue: u32) -> Vec<(u64, Piece, Id)> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(other) = self.queues.holder(at) {
            at = other + 1;
            for small in [true, false] {
                for id in self.free_of(other, small, size_class::floor(self.settings.page)) {
                    if !self.may_use(queue, id) {
                        continue;
                    }
                    let block = self.slab.at(id);
                    let (start, end) = (block.address, block.end());
                    for (address, piece) in self.space.pieces.range(start..end) {
                        let pinned = rules::must_stay(piece.pinned);
                        if !pinned && address + piece.bytes <= end {
                            found.push((*address, *piece, id));
                        }
                    }
                }
            }
        }
        // The largest first; among equals those whose work is over, then the oldest.
        found.sort_unstable_by_key(|(address, piece, id)| {
            let block = self.slab.at(*id);
            let complete = self.queues.is_complete(block.queue, block.fence);
            (piece.bytes, complete, std::cmp::Reverse(*address))
        });
        found
    }

    /// Where a request goes: free addresses, its begin there, and how many bytes lack memory.
    fn window(&mut self, queue: u32, need: u64, small: bool) -> Option<(Interval, u64, u64)> {
        let mut best: Option<(Interval, u64, u64)> = None;
        let starts: Vec<u64> = self.space.unmapped(small).iter().copied().collect();
        let mut seen = NIL;
        for start in starts {
            let Some(id) = self.beginning(start) else {
                continue;
            };
            let interval = self.interval(queue, id);
            if interval.first == seen {
                continue;
            }
            seen = interval.first;
            let Some((at, missing)) = self.place(&interval, need) else {
                continue;
            };
            if best.as_ref().is_none_or(|(_, _, least)| missing < *least) {
                best = Some((interval, at, missing));
            }
        }
        best
    }

    /// The free addresses around an unmapped block that the queue may use.
    fn interval(&self, queue: u32, id: Id) -> Interval {
        let free = |id: Id| match self.slab.at(id).state {
            Is::Unmapped => true,
            Is::Free => self.may_use(queue, id),
            _ => false,
        };
        let mut first = id;
        while self.slab.at(first).left != NIL && free(self.slab.at(first).left) {
            first = self.slab.at(first).left;
        }
        let mut parts = Vec::new();
        let mut id = first;
        while id != NIL && free(id) {
            let block = self.slab.at(id);
            parts.push((block.address, block.end(), block.state == Is::Free));
            id = block.right;
        }
        Interval { first, parts }
    }

    /// The place within free addresses where the fewest bytes are missing.
    fn place(&self, interval: &Interval, need: u64) -> Option<(u64, u64)> {
        let mut best: Option<(u64, u64)> = None;
        let begins = interval.parts.iter().map(|(a, _, _)| Some(*a));
        let ends = interval.parts.iter().map(|(_, b, _)| b.checked_sub(need));
        for at in begins.chain(ends).flatten() {
            let Some(missing) = self.missing(interval, at, need) else {
                continue;
            };
            if best.is_none_or(|(_, least)| missing < least) {
                best = Some((at, missing));
            }
        }
        best
    }

    /// How many bytes lack memory for a request at an address. `None`: the addresses are not all free.
    fn missing(&self, interval: &Interval, at: u64, need: u64) -> Option<u64> {
        let page = self.settings.page;
        let (low, high) = (interval.parts.first()?.0, interval.parts.last()?.1);
        let end = at.checked_add(need).filter(|end| *end <= high)?;
        let gaps = interval
            .parts
            .iter()
            .filter(|(a, b, mapped)| !mapped && *a < end && at < *b)
            .map(|(a, b, _)| {
                let from = (*a).max(at / page * page);
                end.next_multiple_of(page).min(*b) - from
            });
        (at >= low).then(|| gaps.sum())
    }

    /// A mapping was carried out: these pieces are in place, under these handles. Returns the request's
    /// block.
    pub fn mapped(&mut self, mapping: Mapping, handles: &[u64], queue: u32) -> Id {
        let mut used_before = false;
        for (fill, handle) in mapping.fills.iter().zip(handles) {
            used_before |= self.filled(fill, *handle);
        }
        let id = self.settle_window(&mapping, queue, used_before);
        self.cut(id, mapping.need, |state, rest| state.insert(rest));
        id
    }

    /// The window of a mapping as a block of the queue that begins where the request's does.
    fn settle_window(&mut self, mapping: &Mapping, queue: u32, used_before: bool) -> Id {
        // Another stream must come after the work that used a piece elsewhere before.
        let fence = if rules::needs_fence(used_before) {
            self.queues.join(queue)
        } else {
            0
        };
        let block = self.slab.at_mut(mapping.window);
        (block.queue, block.fence) = (queue, fence);
        let before = mapping.start - block.address;
        if before == 0 {
            return mapping.window;
        }
        let mut id = mapping.window;
        self.cut(mapping.window, before, |_, rest| id = rest);
        self.insert(mapping.window);
        id
    }

    /// One piece is in place. True if earlier work may still use it elsewhere.
    fn filled(&mut self, fill: &Fill, handle: u64) -> bool {
        let bytes = fill.bytes;
        let piece = Piece::new(handle, bytes);
        self.space.pieces.insert(fill.to, piece);
        match fill.source {
            PageSource::New => {
                self.stats.reserve(bytes);
                self.stats.created += 1;
                false
            }
            PageSource::Moved(address, block) => {
                self.space.pieces.remove(&address);
                self.unmapped(block);
                self.stats.moved += 1;
                false
            }
            PageSource::Aliased(address, block) => {
                self.space.pieces.remove(&address);
                self.slab.at_mut(block).state = Is::Stale;
                self.space.stale.push((block, handle));
                self.stats.aliased += 1;
                true
            }
        }
    }

    /// A mapping failed after its first `handles.len()` pieces: those stay where they are, free.
    pub fn abandoned(&mut self, mapping: &Mapping, handles: &[u64], queue: u32) {
        for (fill, handle) in mapping.fills.iter().zip(handles) {
            self.filled(fill, *handle);
        }
        for fill in mapping.fills.iter().skip(handles.len()) {
            if let PageSource::Moved(_, block) | PageSource::Aliased(_, block) = fill.source {
                self.insert(block);
            }
        }
        // The window had free memory of its own, perhaps, which earlier work may still use.
        let fence = if rules::needs_fence_after_failure() {
            self.queues.join(queue)
        } else {
            0
        };
        let block = self.slab.at_mut(mapping.window);
        (block.queue, block.fence) = (queue, fence);
        let mut id = mapping.window;
        for fill in mapping.fills.iter().skip(handles.len()) {
            let address = self.slab.at(id).address;
            let mut rest = NIL;
            if address < fill.to {
                self.cut(id, fill.to - address, |_, r| rest = r);
                self.insert(id);
                id = rest;
            }
            rest = NIL;
            self.cut(id, fill.bytes, |_, r| rest = r);
            self.unmapped(id);
            id = rest;
        }
        if id != NIL {
            self.insert(id);
        }
    }
}
