//! Mappings: the addresses for a request that no free block answers, and the memory placed there.
//!
//! A mapping is decided under the lock and carried out without it. The blocks that it takes are
//! busy meanwhile. Its window is placed where the fewest bytes lack memory.
//!
//! New memory fills the window as long as the pool holds little more than was ever allocated at
//! once. Otherwise free pieces from elsewhere fill it. This limits the memory held, and little
//! memory moves once the pool has seen its peak.

use super::space::Piece;
use super::space::SMALL;
use crate::pool::block::{Id, NIL, State as Is};
use crate::pool::state::State;
use crate::rules;
use crate::size_class;

/// Addresses of a window that lack memory, and the source of the memory placed there.
pub(in crate::pool) struct Fill {
    pub to: u64,
    pub bytes: u64,
    pub source: PageSource,
}

/// Source of the memory for a [`Fill`].
#[derive(Clone, Copy)]
pub(in crate::pool) enum PageSource {
    /// A new piece from the driver.
    New,
    /// A free piece at another address, whose work is complete, and its block.
    Moved(u64, Id),
    /// A free piece at another address, and its block. Its work precedes the request's, but is not
    /// complete.
    Aliased(u64, Id),
}

/// A window and how to fill it.
pub(in crate::pool) struct Mapping {
    /// One busy block. It becomes the request's block and perhaps free blocks around it.
    pub window: Id,
    /// Address of the request's block.
    pub start: u64,
    pub need: u64,
    pub fills: Vec<Fill>,
    /// Free pieces that are too large for any gap. They are given back to the driver first, in
    /// exchange for as much new memory as is needed.
    pub given: Vec<(Id, u64, Piece)>,
}

impl Mapping {
    /// Bytes of new memory that the driver must provide.
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
    /// Begin and end of each part, and true if it has memory.
    parts: Vec<(u64, u64, bool)>,
}

/// Ways to look for memory, in the order in which they are tried.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum Mode {
    /// Gets new memory or moves free pieces, depending on the pool's budget.
    Balanced,
    /// Works as `Balanced`, after other caches gave unused memory back.
    Again,
    /// Takes free pieces from anywhere, behind the work that uses them: the driver has no more
    /// memory.
    Short,
    /// Works as `Short`, after that work is complete.
    Late,
    /// Gets new memory after all free memory was given back. Large pieces that would be used only
    /// in part are not in the way.
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

    /// True if the driver has already refused.
    pub fn is_short(self) -> bool {
        matches!(self, Mode::Short | Mode::Late | Mode::Last)
    }
}

impl<E: Copy> State<E> {
    /// True if a block of `need` bytes lies in the part of the addresses for small requests.
    pub fn is_small(&self, need: u64) -> bool {
        need <= SMALL && self.settings.backing.is_pages()
    }

    /// Makes a mapping for a request. `None` if no addresses are left.
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

    /// Returns the next piece of a gap, at address `to`: the largest donor that fits, or new
    /// memory. The gap has `done` bytes before the piece and lacks `room` more. The request needs
    /// `need` bytes.
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

    /// Takes the smallest donor of more than `bytes` bytes, to be given back to the driver. Prefers
    /// donors whose work is complete.
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

    /// Returns the free block at an address. `from` is the block that was there before it was cut.
    fn around(&self, from: Id, address: u64) -> Option<Id> {
        let mut id = from;
        while id != NIL && self.slab.at(id).end() <= address {
            id = self.slab.at(id).right;
        }
        (id != NIL && self.slab.at(id).state == Is::Free).then_some(id)
    }

    /// Free pieces that the queue may use, in reverse order of use.
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
                        if address + piece.bytes <= end {
                            found.push((*address, *piece, id));
                        }
                    }
                }
            }
        }
        // The last is used first: the largest; among equals, one whose work is complete, then the
        // lowest address.
        found.sort_unstable_by_key(|(address, piece, id)| {
            let block = self.slab.at(*id);
            let complete = self.queues.is_complete(block.queue, block.fence);
            (piece.bytes, complete, std::cmp::Reverse(*address))
        });
        found
    }

    /// Chooses free addresses for a request. Returns them, the request's address among them, and
    /// the number of bytes without memory.
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

    /// Returns the contiguous free addresses around an unmapped block that the queue may use.
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

    /// Returns the address in an interval where the fewest bytes lack memory, and their number.
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

    /// Number of bytes that lack memory for a request at an address. `None` if the addresses are
    /// not all free.
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

    /// Records that a mapping was carried out with pieces of these handles. Returns the request's
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

    /// Assigns the window of a mapping to the queue. Returns its part from the request's address
    /// on; the part before is free.
    fn settle_window(&mut self, mapping: &Mapping, queue: u32, used_before: bool) -> Id {
        // Other streams must come after the work that used a piece at its former address.
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

    /// Records that one piece is in place. Returns true if earlier work may still use it elsewhere.
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

    /// Records that a mapping failed after its first `handles.len()` pieces. These stay in place,
    /// free.
    pub fn abandoned(&mut self, mapping: &Mapping, handles: &[u64], queue: u32) {
        for (fill, handle) in mapping.fills.iter().zip(handles) {
            self.filled(fill, *handle);
        }
        for fill in mapping.fills.iter().skip(handles.len()) {
            if let PageSource::Moved(_, block) | PageSource::Aliased(_, block) = fill.source {
                self.insert(block);
            }
        }
        // The window may include older memory that earlier work still uses.
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
