//! A request that no free block answers: at which addresses it goes, and which memory comes there.
//!
//! Decided under the lock, carried out without it: what a mapping takes is busy meanwhile. The window is
//! where the fewest bytes are missing. They are filled with new memory as long as the pool holds little
//! more than was ever allocated at once, and with free pieces from elsewhere otherwise: that bounds what
//! is held, and moves little once the pool has seen its peak.
//!
//! The window is chosen in `window.rs`. Free pieces that it would cut go back first (`cuts.rs`); which ones move there is
//! decided in `donors.rs`, and how large new ones are in `piece_size.rs`.

use super::block::{Id, NIL, State as Is};
use super::space::Piece;
use super::space::SMALL;
use super::state::State;
use super::window::Site;
use crate::rules;

/// Addresses of a window that lack memory, and what comes there.
pub(super) struct Fill {
    pub to: u64,
    pub bytes: u64,
    pub source: PageSource,
}

/// Where memory comes from.
#[derive(Clone, Copy)]
pub(super) enum PageSource {
    /// The driver.
    New,
    /// A free piece elsewhere, whose work is over: this block.
    Moved(u64, Id),
    /// A free piece elsewhere, whose work comes before the request's, but is not over.
    Aliased(u64, Id),
}

/// A window and how to fill it.
pub(super) struct Mapping {
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

/// How memory is looked for, in the order in which it is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
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

/// Bytes of the gaps together, and of the largest.
fn missing_of(gaps: &[(u64, u64)]) -> (u64, u64) {
    let sizes = || gaps.iter().map(|(from, to)| to - from);
    (sizes().sum(), sizes().max().unwrap_or(0))
}

impl<E: Copy> State<E> {
    /// Which part of the addresses a request goes to.
    pub fn is_small(&self, need: u64) -> bool {
        need <= SMALL && self.settings.policy.splits()
    }

    /// Makes a mapping for a request where it is to go.
    pub fn mapping(&mut self, queue: u32, need: u64, site: Site, mode: Mode) -> Option<Mapping> {
        let Site {
            interval,
            start,
            missing,
            is_aimed,
            small,
        } = site;
        let page = self.settings.page;
        // What a plan takes was decided with it.
        let fits = is_aimed || self.stats.reserved + missing <= self.budget(need);
        let grows = !mode.is_short() && fits;
        let end = start + need;
        let gaps: Vec<(u64, u64)> = interval
            .parts
            .iter()
            .filter(|(a, b, mapped)| !mapped && *a < end && start < *b)
            .map(|(a, b, _)| {
                let from = a.max(&(start / page * page)).to_owned();
                (from, end.next_multiple_of(page).min(*b))
            })
            .collect();
        let from = gaps.first().map_or(start, |gap| gap.0.min(start));
        let to = gaps.last().map_or(end, |gap| gap.1.max(end));
        let window = self.carve(from, to, interval.first)?;
        self.slab.at_mut(window).small = small;
        let mut donors = if grows {
            Vec::new()
        } else {
            self.donors(queue, missing_of(&gaps), mode.is_short())
        };
        let mut fills = Vec::new();
        let mut given = Vec::new();
        let mut credit = 0;
        for (mut at, last) in gaps {
            while at < last {
                let fill = self.fill(&mut donors, at, last - at, need, end < last);
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

    /// The next piece of a gap that lacks `room` bytes, for a request of `need`, which may end within its
    /// last page: the largest donor that fits, or new memory.
    fn fill(
        &mut self,
        donors: &mut Vec<(u64, Piece, Id)>,
        to: u64,
        room: u64,
        need: u64,
        ends_within: bool,
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
        let bytes = self.piece_size(room, need, ends_within);
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
    pub fn around(&self, from: Id, address: u64) -> Option<Id> {
        let mut id = from;
        while id != NIL && self.slab.at(id).end() <= address {
            id = self.slab.at(id).right;
        }
        (id != NIL && self.slab.at(id).state == Is::Free).then_some(id)
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
