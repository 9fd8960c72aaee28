//! Where a request goes that no free block answers: the free addresses where the fewest bytes are missing.

use super::block::{Id, NIL, State as Is};
use super::space::Piece;
use super::state::State;

/// Free addresses next to each other.
pub(super) struct Interval {
    pub first: Id,
    /// Begin, end, whether there is memory.
    pub parts: Vec<(u64, u64, bool)>,
}

/// Where a request goes.
pub(super) struct Site {
    pub interval: Interval,
    /// Where it begins.
    pub start: u64,
    /// Bytes that lack memory there.
    pub missing: u64,
    /// Chosen beforehand, by a plan.
    pub is_aimed: bool,
    /// In the part of the addresses that small requests share.
    pub small: bool,
}

/// A place for a request: the least is the best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Bytes that lack memory there.
    missing: u64,
    /// Whether it cuts a large piece.
    cuts: bool,
    /// Whether it leaves what other blocks left of a page as it is.
    leaves: bool,
    /// Where the request begins.
    start: u64,
}

impl Interval {
    /// Where it begins and ends.
    pub fn extent(&self) -> (u64, u64) {
        let begin = self.parts.first().map_or(0, |(begin, _, _)| *begin);
        let end = self.parts.last().map_or(begin, |(_, end, _)| *end);
        (begin, end)
    }
}

impl<E: Copy> State<E> {
    /// Where a request goes. `None`: no addresses left.
    pub fn site(&mut self, queue: u32, need: u64) -> Option<Site> {
        let aimed = self.aimed(queue, need);
        let is_aimed = aimed.is_some();
        let small = !is_aimed && self.is_small(need);
        let (interval, start, missing) = match aimed {
            Some(place) => place,
            None => self.window(queue, need, small)?,
        };
        Some(Site {
            interval,
            start,
            missing,
            is_aimed,
            small,
        })
    }

    /// As [`State::window`], of the place that was chosen beforehand. If that cannot be had, no other is
    /// looked at either from here on.
    fn aimed(&mut self, queue: u32, need: u64) -> Option<(Interval, u64, u64)> {
        let (start, id) = self.aim(need)?;
        let interval = self.interval(queue, id);
        let missing = self.missing(&interval, start, need);
        if missing.is_none() {
            self.gives_place_up(need);
        }
        Some((interval, start, missing?))
    }

    /// Where a request goes: free addresses, its begin there, and how many bytes lack memory.
    fn window(&mut self, queue: u32, need: u64, small: bool) -> Option<(Interval, u64, u64)> {
        let mut best: Option<(Interval, Place)> = None;
        // First a block that is large enough, but has a piece that would be cut.
        let block = if small {
            None
        } else {
            self.best(queue, need, u32::MAX)
        };
        let block = block.map(|id| self.slab.at(id).address);
        let bare: Vec<u64> = self.space.unmapped(small).iter().copied().collect();
        let mut looked_to = 0;
        for start in block.into_iter().chain(bare) {
            let Some(&id) = self.map.get(&start).filter(|_| start >= looked_to) else {
                continue;
            };
            let interval = self.interval(queue, id);
            if Some(start) != block {
                looked_to = interval.extent().1;
            }
            let least = best.as_ref().map(|(_, least)| *least);
            if let Some(place) = self.place(&interval, need, least) {
                best = Some((interval, place));
            }
        }
        let (interval, place) = best?;
        Some((interval, place.start, place.missing))
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

    /// The best place within free addresses, if it is better than the best one elsewhere.
    fn place(&self, interval: &Interval, need: u64, elsewhere: Option<Place>) -> Option<Place> {
        let page = self.settings.page;
        let has_memory = interval.parts.iter().any(|(_, _, mapped)| *mapped);
        let begins = interval.parts.iter().map(|(a, _, _)| Some(*a));
        let ends = interval.parts.iter().map(|(_, b, _)| b.checked_sub(need));
        let mut best = elsewhere;
        for start in begins.chain(ends).flatten() {
            let Some(bare) = self.bare(interval, start, need) else {
                continue;
            };
            if best.is_some_and(|least| bare > least.missing) {
                continue;
            }
            let cut = self.bytes_cut(interval, start, need);
            let place = Place {
                missing: bare + cut,
                cuts: cut > 0,
                leaves: !has_memory || start.is_multiple_of(page),
                start,
            };
            if best.is_none_or(|least| place < least) {
                best = Some(place);
            }
        }
        best.filter(|_| best != elsewhere)
    }

    /// How many bytes lack memory for a request at an address, also those of pieces that would be cut. `None`: the addresses
    /// are not all free.
    fn missing(&self, interval: &Interval, at: u64, need: u64) -> Option<u64> {
        Some(self.bare(interval, at, need)? + self.bytes_cut(interval, at, need))
    }

    /// How many bytes at an address have no memory behind them. `None`: the addresses are not all free.
    fn bare(&self, interval: &Interval, at: u64, need: u64) -> Option<u64> {
        let page = self.settings.page;
        let (low, high) = interval.extent();
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

    /// How many of the bytes for a request at an address are of large pieces that would be cut.
    fn bytes_cut(&self, interval: &Interval, at: u64, need: u64) -> u64 {
        let page = self.settings.page;
        let (from, to) = (at / page * page, (at + need).next_multiple_of(page));
        let within = |(at, piece): (u64, Piece)| (at + piece.bytes).min(to) - at.max(from);
        self.cuts(interval, at, need).map(within).sum()
    }
}
