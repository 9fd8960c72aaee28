//! What is known of all segments of a device, and what announcements change.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::fences::Fences;
use super::live_sum::LiveSum;
use super::memory::{Memories, Memory};
use super::open::OpenCaptures;
use super::pages::{Handle, PAGE, Pages};
use super::piece::{self, Piece};
use super::segment::Segment;
use super::segments::Segments;
use super::types::{Allocation, Found, Mode, Stats, Trouble};
use super::wanted::Wanted;
use crate::driver::Driver;
use crate::rules;
use crate::slab::Id;

/// Pages that are left before an event is recorded for them, while memory is short. Memory whose event comes late must be
/// waited for longer; but an event costs time on the host and in every stream, and memory that goes from one tensor to
/// another by the order of their stream needs none.
const BATCH: usize = 16;
const LARGE_BATCH: usize = 1024;
/// How many events follow each other after few pages, once memory was wanted whose work was not over.
const EAGER: u32 = 64;

/// All of it, under one lock.
pub(super) struct State<E> {
    pub mode: Mode,
    pub segments: Segments,
    pub memories: Memories,
    pub fences: Fences<E>,
    pub live_sum: LiveSum,
    pub captures: Arc<OpenCaptures>,
    /// Other devices that may use the memory.
    pub others: Vec<i32>,
    /// The [size](piece::SIZES) of pieces, at most. Smaller once a tensor got memory of the host: smaller pieces keep less that no
    /// tensor uses.
    pub largest: usize,
    /// The last request for new memory was refused.
    pub is_short: bool,
    /// So many events are recorded after few pages yet.
    pub eager: u32,
    /// The announcements were wrong: no memory becomes spare.
    pub is_off: bool,
    /// A piece keeps its memory when its last tensor is freed, until a request lacks memory (`idle.rs`).
    pub keeps_idle: bool,
    /// Counts how often the last tensor left a piece.
    pub clock: u64,
    /// Counts segments.
    pub last: u64,
    pub moves: u64,
    /// The clock at the last ticks of [`Elastic::decay`](super::Elastic::decay), the oldest first.
    pub ticks: VecDeque<u64>,
}

impl<E: Copy> State<E> {
    pub fn new(mode: Mode, captures: Arc<OpenCaptures>) -> Self {
        State {
            mode,
            segments: Segments::default(),
            memories: Memories::new(),
            fences: Fences::default(),
            live_sum: LiveSum::default(),
            captures,
            others: Vec::new(),
            largest: piece::SIZES - 1,
            is_short: false,
            eager: 0,
            is_off: false,
            keeps_idle: mode == Mode::Pressure,
            clock: 0,
            last: 0,
            moves: 0,
            ticks: VecDeque::new(),
        }
    }

    pub fn is_capturing(&self) -> bool {
        self.captures.any()
    }

    /// Whether any memory is spare.
    pub fn has_spare(&self) -> bool {
        self.memories.first_left().is_some()
    }

    /// The pieces of a segment that have no tensor become idle, or their memory spare.
    fn empty(&mut self, base: u64) {
        let all = self.segments.get(base).map_or(0..0, Segment::all);
        self.change(base, all, |_| ());
    }

    /// Changes the pieces on these pages of a segment. Those that no tensor is on any more become idle, or their memory spare.
    fn change(&mut self, base: u64, pages: Range<usize>, change: impl Fn(&mut Piece)) {
        let Some(segment) = self.segments.get_mut(base) else {
            return;
        };
        let keeps_all = segment.keeps_all() || self.is_off;
        let mut at = pages.start;
        while let Some((first, piece)) = segment.next_piece(at..pages.end) {
            at = first + piece.pages;
            change(piece);
            if !piece.is_idle() {
                continue;
            }
            self.clock += 1;
            piece.left = self.clock;
            if keeps_all {
                continue;
            }
            self.fences.left(piece.pages);
            if !self.keeps_idle {
                self.memories.release_from(piece);
            }
        }
    }

    /// Gives a tensor memory that was allocated for a stream, if it is known.
    pub fn allocated<D: Driver<Event = E>>(
        &mut self,
        driver: &Pages<D>,
        address: u64,
        bytes: u64,
        total: u64,
        stream: Option<u8>,
    ) -> Allocation {
        let mut allocation = Allocation::default();
        let trouble = self.live_sum.allocated(bytes, total);
        let trouble = trouble.or(self.enter(address, bytes, &mut allocation));
        if let Some(trouble) = trouble.filter(|_| !self.is_off) {
            allocation.trouble = Some(trouble);
            self.switch_off(driver);
        }
        if let Some(segment) = self.segments.around(address) {
            let (base, pages) = (segment.base, segment.pages_of(address, bytes));
            let wanted = Wanted {
                size: piece::size_for(pages.len(), self.largest),
                stream,
                tensors: 1,
                is_needed: true,
            };
            let mut backed = self.claim(driver, base, pages.clone(), wanted);
            backed += self.back(driver, base, pages, wanted);
            if backed.on_host + backed.missing > 0 {
                self.largest = self.largest.saturating_sub(1);
            }
            if backed.missing > 0
                && let Some(segment) = self.segments.get_mut(base)
            {
                segment.is_incomplete = true;
            }
            (allocation.on_host, allocation.missing) = (backed.on_host, backed.missing);
        }
        self.tidy(driver);
        allocation
    }

    /// Notes a tensor.
    fn enter(&mut self, address: u64, bytes: u64, allocation: &mut Allocation) -> Option<Trouble> {
        let is_capturing = self.is_capturing();
        let Some(segment) = self.segments.around_mut(address) else {
            let reaches = self.segments.reach(address, bytes);
            return reaches.then_some(Trouble::Straddles(address));
        };
        if address + bytes > segment.base + segment.reserved() {
            return Some(Trouble::Straddles(address));
        }
        let trouble = segment
            .overlaps(address, bytes)
            .then_some(Trouble::Overlaps(address));
        segment.tensors.insert(address, bytes);
        // Each launch of the captured graph uses this memory again, without an announcement.
        if rules::pins_new_tensors(is_capturing) {
            segment.is_pinned = true;
        }
        if segment.is_unproven && segment.base == address {
            segment.is_unproven = false;
            allocation.proves = true;
            let base = segment.base;
            self.empty(base);
        }
        trouble
    }

    /// A tensor was freed. `is_elsewhere`: work of other streams may use it.
    pub fn freed<D: Driver<Event = E>>(
        &mut self,
        driver: &Pages<D>,
        address: u64,
        bytes: u64,
        total: u64,
        is_elsewhere: bool,
    ) -> Option<Trouble> {
        let trouble = self.live_sum.freed(bytes, total);
        let trouble = trouble
            .or(self.leave(address, bytes, is_elsewhere))
            .filter(|_| !self.is_off);
        if trouble.is_some() {
            self.switch_off(driver);
        }
        self.tidy(driver);
        trouble
    }

    /// Takes a tensor off its pages.
    fn leave(&mut self, address: u64, bytes: u64, is_elsewhere: bool) -> Option<Trouble> {
        let segment = self.segments.around_mut(address)?;
        match segment.tensors.remove(&address) {
            None => return Some(Trouble::Unborn(address)),
            Some(size) if size != bytes => return Some(Trouble::Resized(address)),
            Some(_) => {}
        }
        let (base, pages) = (segment.base, segment.pages_of(address, bytes));
        let is_elsewhere = rules::counts_other_streams(is_elsewhere);
        self.change(base, pages, |piece| {
            piece.tensors = rules::without_one(piece.tensors);
            if is_elsewhere {
                piece.stream = None;
            }
        });
        None
    }

    /// Records events while memory is short.
    fn tidy<D: Driver<Event = E>>(&mut self, driver: &Pages<D>) {
        let batch = if self.eager > 0 { BATCH } else { LARGE_BATCH };
        if (self.is_short || self.mode == Mode::Least) && self.fences.open_pages() >= batch {
            self.eager = self.eager.saturating_sub(1);
            self.look(driver);
        }
    }

    /// Memory was wanted whose work is not over: it may be again.
    pub fn is_behind(&mut self) {
        self.eager = EAGER;
    }

    /// Records an event for what has none, and looks which have completed.
    pub fn look<D: Driver<Event = E>>(&mut self, driver: &Pages<D>) {
        let is_capturing = self.is_capturing();
        self.fences.close(driver, self.clock, is_capturing);
        self.fences.poll(driver, is_capturing);
    }

    /// The announcements cannot be trusted: every page gets memory of its own, as far as there is some, and keeps it.
    pub fn switch_off<D: Driver<Event = E>>(&mut self, driver: &Pages<D>) {
        self.is_off = true;
        self.part(driver);
        if !rules::must_restore() {
            return;
        }
        let all = self.segments.values().map(|s| (s.base, s.all()));
        for (base, pages) in all.collect::<Vec<_>>() {
            self.back(driver, base, pages, Wanted::UNNEEDED);
        }
    }

    /// No memory is at two pieces any more, or spare.
    fn part<D: Driver<Event = E>>(&mut self, driver: &Pages<D>) {
        while let Some((id, memory)) = self.memories.first_left() {
            let owner = memory.places.iter().find(|place| **place == memory.last);
            match owner.or(memory.places.first()).copied() {
                Some(owner) => {
                    self.memories.unlink(id);
                    self.own(id, owner);
                }
                None => {
                    self.destroy(driver, id);
                }
            }
        }
        let segments = self.segments.values();
        let pieces =
            segments.flat_map(|s| s.pieces().map(|(first, piece)| (s.address(first), *piece)));
        let shared = pieces.filter(|(_, piece)| !piece.owns_memory);
        for (address, piece) in shared.collect::<Vec<_>>() {
            self.unmap(driver, address, piece);
        }
        self.fences.clear(driver);
    }

    /// A capture is about to begin: its graph may use what lives now.
    pub fn capture_began<D: Driver<Event = E>>(&mut self, driver: &Pages<D>, capture: u64) {
        self.fences.poll(driver, self.is_capturing());
        self.captures.began(capture);
        let pieces = self.segments.values_mut().flat_map(Segment::pieces_mut);
        pieces.for_each(|piece| piece.is_pinned |= rules::pins_lives(piece.tensors > 0));
    }

    /// Bytes that pages could get without a page in use losing its memory, besides new ones.
    pub fn available(&self) -> u64 {
        if self.is_off {
            return 0;
        }
        let is_capturing = self.is_capturing();
        let spare = self.memories.spare().map(|(_, memory)| memory);
        // Nothing can be waited for under a capture.
        let usable = |left: u64| !is_capturing || self.fences.is_over(left);
        let spare = spare.filter(|memory| usable(memory.left));
        let idle = self.idle().filter(|piece| usable(piece.left));
        let idle = idle.map(|piece| self.memories.at(piece.memory).on_device());
        spare.map(Memory::on_device).chain(idle).sum()
    }

    /// The piece at an address has this memory from here on, which is in no list.
    pub fn own(&mut self, id: Id, address: u64) {
        self.memories.own(id, address);
        if let Some(segment) = self.segments.around_mut(address) {
            let page = segment.index(address);
            if let Some((_, piece)) = segment.next_piece(page..page + 1) {
                piece.owns_memory = true;
            }
        }
    }

    pub fn find(&self, address: u64) -> Option<Found> {
        let segment = self
            .segments
            .around(address)
            .filter(|s| address < s.base + s.bytes)?;
        let backed = if segment.has_memory(segment.index(address)) {
            Some(address)
        } else {
            let first = segment.pieces().next();
            first.map(|(first, _)| segment.address(first))
        };
        Some(Found {
            base: segment.base,
            bytes: segment.bytes,
            number: segment.number,
            backed,
        })
    }

    /// The pieces of a pinned segment. `None`: it is not pinned, or not all of it is memory of the device.
    pub fn backing(&self, address: u64) -> Option<Vec<Handle>> {
        let segment = self
            .segments
            .around(address)
            .filter(|segment| segment.is_pinned)?;
        if segment.all().any(|page| !segment.has_memory(page)) {
            return None;
        }
        let pieces = segment.pieces();
        let memory = pieces.map(|(_, piece)| self.memories.at(piece.memory).handle);
        memory
            .map(|memory| (!memory.is_host).then_some(memory))
            .collect()
    }

    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            moves: self.moves,
            ..Stats::default()
        };
        for memory in self.memories.all() {
            let bytes = memory.on_device();
            stats.held += bytes;
            stats.on_host += memory.handle.bytes - bytes;
            match memory.owner {
                Some(_) => stats.in_use += bytes,
                None => stats.spare += bytes,
            }
        }
        for piece in self.idle() {
            let bytes = self.memories.at(piece.memory).on_device();
            (stats.in_use, stats.spare) = (stats.in_use - bytes, stats.spare + bytes);
        }
        for segment in self.segments.values() {
            stats.segments += segment.bytes;
            let own = segment.pieces().filter(|(_, piece)| {
                piece.owns_memory && !self.memories.at(piece.memory).handle.is_host
            });
            let keeps_all = segment.keeps_all() || self.is_off;
            let stays = own.filter(|(_, piece)| {
                piece.is_pinned || segment.is_pinned || piece.tensors == 0 && keeps_all
            });
            stats.pinned += PAGE * stays.map(|(_, piece)| piece.pages as u64).sum::<u64>();
        }
        debug_assert_eq!(stats.held, self.memories.held.now);
        stats
    }
}
