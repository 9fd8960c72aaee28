//! Where a request goes that no free block answers: the free addresses where the fewest bytes are missing.

use super::block::{Id, NIL, State as Is};
use super::space::Piece;
use super::state::State;
use crate::size_class;

/// Free blocks that are too small for a request and whose surroundings are looked at.
const LOOK: usize = 16;
/// Of those, how many are compared where many queues have some.
const LOOK_OF_ALL: usize = 64;
/// Ranges without memory that are looked at.
const HOLES: usize = 4;
/// Blocks on each side of one that are looked at.
const PARTS: usize = 32;

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

/// Bytes without memory in free addresses.
struct Bare {
    /// Begin and end of each range, and the bytes of those before it.
    ranges: Vec<(u64, u64, u64)>,
}

impl Bare {
    fn of(interval: &Interval) -> Self {
        let mut sum = 0;
        let bare = interval.parts.iter().filter(|(_, _, mapped)| !mapped);
        let range = |(begin, end, _): &(u64, u64, bool)| {
            sum += end - begin;
            (*begin, *end, sum - (end - begin))
        };
        Bare {
            ranges: bare.map(range).collect(),
        }
    }

    /// Those below an address.
    fn below(&self, address: u64) -> u64 {
        let after = self
            .ranges
            .partition_point(|(begin, _, _)| *begin < address);
        let last = after.checked_sub(1).and_then(|last| self.ranges.get(last));
        last.map_or(0, |(begin, end, before)| before + address.min(*end) - begin)
    }

    fn between(&self, from: u64, to: u64) -> u64 {
        self.below(to) - self.below(from)
    }
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
        let interval = self.interval(queue, id, need);
        let missing = self.missing(&interval, start, need);
        if missing.is_none() {
            self.gives_place_up(need);
        }
        Some((interval, start, missing?))
    }

    /// Where a request goes: free addresses, its begin there, and how many bytes lack memory.
    fn window(&mut self, queue: u32, need: u64, small: bool) -> Option<(Interval, u64, u64)> {
        let mut best: Option<(Interval, Place)> = None;
        let mut seen: Vec<(u64, u64)> = Vec::new();
        for id in self.candidates(queue, need, small) {
            let address = self.slab.at(id).address;
            if (seen.iter()).any(|(begin, end)| (*begin..*end).contains(&address)) {
                continue;
            }
            let interval = self.interval(queue, id, need);
            seen.push(interval.extent());
            let least = best.as_ref().map(|(_, least)| *least);
            if let Some(place) = self.place(&interval, need, least) {
                best = Some((interval, place));
            }
        }
        let (interval, place) = best?;
        Some((interval, place.start, place.missing))
    }

    /// Blocks in whose neighbourhood a request may go: one that is large enough, but has a piece that would be cut; the
    /// largest that are too small; the smallest ranges without memory that are large enough.
    fn candidates(&mut self, queue: u32, need: u64, small: bool) -> Vec<Id> {
        let block = match small {
            true => None,
            false => self.best(queue, need, u32::MAX),
        };
        let mut found: Vec<Id> = block.into_iter().collect();
        let class = size_class::floor(need);
        let mut at = 0;
        let mut near = Vec::new();
        while let Some(other) = self.queues.holder(at)
            && near.len() < LOOK_OF_ALL
        {
            at = other + 1;
            let most = (near.len() + LOOK).min(LOOK_OF_ALL);
            if let Some(bins) = self.queues.get(other).and_then(|other| other.bins(small)) {
                bins.largest_to(&mut self.slab, class, most, &mut near);
            }
        }
        near.retain(|id| self.slab.at(*id).size < need && self.may_use(queue, *id));
        near.sort_by_key(|id| std::cmp::Reverse(self.slab.at(*id).size));
        near.truncate(LOOK);
        found.append(&mut near);
        let whole = need.next_multiple_of(self.settings.page);
        let bare = self.space.unmapped(small).range((whole, 0)..).take(HOLES);
        let bare: Vec<u64> = bare.map(|(_, address)| *address).collect();
        found.extend(bare.iter().filter_map(|address| self.map.get(address)));
        found
    }

    /// The free addresses around a block that the queue may use, as far as a request at the block may reach.
    fn interval(&self, queue: u32, id: Id, need: u64) -> Interval {
        let free = |id: Id| {
            id != NIL
                && match self.slab.at(id).state {
                    Is::Unmapped => true,
                    Is::Free => self.may_use(queue, id),
                    _ => false,
                }
        };
        let (low, high) = (self.slab.at(id).address, self.slab.at(id).end());
        let mut first = id;
        for _ in 0..PARTS {
            let left = self.slab.at(first).left;
            if low - self.slab.at(first).address > need || !free(left) {
                break;
            }
            first = left;
        }
        let mut parts = Vec::new();
        let mut id = first;
        while parts.len() < 2 * PARTS && free(id) {
            let block = self.slab.at(id);
            parts.push((block.address, block.end(), block.state == Is::Free));
            if block.address.saturating_sub(high) > need {
                break;
            }
            id = block.right;
        }
        Interval { first, parts }
    }

    /// The best place within free addresses, if it is better than the best one elsewhere.
    fn place(&self, interval: &Interval, need: u64, elsewhere: Option<Place>) -> Option<Place> {
        let page = self.settings.page;
        let memory = interval.parts.iter().filter(|(_, _, mapped)| *mapped);
        let memory: u64 = memory.map(|(begin, end, _)| end - begin).sum();
        if elsewhere.is_some_and(|least| need.saturating_sub(memory) > least.missing) {
            return None;
        }
        let (low, high) = interval.extent();
        let begins = interval.parts.iter().map(|(a, _, _)| Some(*a));
        let ends = interval.parts.iter().map(|(_, b, _)| b.checked_sub(need));
        let bare = Bare::of(interval);
        let may_cut = memory > self.fine();
        let mut best = elsewhere;
        for start in begins.chain(ends).flatten() {
            if start < low || start + need > high {
                continue;
            }
            let bare = bare.between(start / page * page, (start + need).next_multiple_of(page));
            if best.is_some_and(|least| bare > least.missing) {
                continue;
            }
            let cut = match may_cut {
                true => self.bytes_cut(interval, start, need),
                false => 0,
            };
            let place = Place {
                missing: bare + cut,
                cuts: cut > 0,
                leaves: memory == 0 || start.is_multiple_of(page),
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
        let (low, high) = interval.extent();
        let end = at
            .checked_add(need)
            .filter(|end| *end <= high && at >= low)?;
        let page = self.settings.page;
        let bare = Bare::of(interval).between(at / page * page, end.next_multiple_of(page));
        Some(bare + self.bytes_cut(interval, at, need))
    }

    /// How many of the bytes for a request at an address are of large pieces that would be cut.
    fn bytes_cut(&self, interval: &Interval, at: u64, need: u64) -> u64 {
        let page = self.settings.page;
        let (from, to) = (at / page * page, (at + need).next_multiple_of(page));
        let within = |(at, piece): (u64, Piece)| (at + piece.bytes).min(to) - at.max(from);
        self.cuts(interval, at, need).map(within).sum()
    }
}
