//! State of all segments of a device, and its changes by announcements.

use std::collections::VecDeque;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use super::fences::Fences;
use super::live_sum::LiveSum;
use super::memory::{Memories, Memory};
use super::open_captures::OpenCaptures;
use super::pages::{PAGE, Pages};
use super::piece::{self, Piece};
use super::request::Wanted;
use super::segment::Segment;
use super::segments::Segments;
use super::types::{Allocation, Found, Mode, Stats, Trouble};
use crate::driver::Driver;
use crate::rules;
use crate::slab::Id;

/// Number of pages that are left before an event is recorded for them, while memory is short.
/// [`LARGE_BATCH`] applies unless memory was recently wanted before the work on it was complete.
///
/// A late event makes requests for the memory wait longer. But an event costs time on the host and
/// in every stream, and memory that passes on in stream order needs none.
const BATCH: usize = 16;
const LARGE_BATCH: usize = 1024;
/// Number of events that are recorded after [`BATCH`] pages, once memory was wanted before its work
/// was complete.
const EAGER: u8 = 64;

/// State of all segments, under one lock.
///
/// The program's own work evicts it from the processor's cache between two announcements. So the
/// fields that each reads come first, in two lines of the cache with the lock.
#[repr(C)]
pub(super) struct State<D: Driver> {
    pub segments: Segments,
    pub live_sum: LiveSum,
    /// Number of times that the last tensor left a piece.
    pub clock: u64,
    pub mode: Mode,
    /// True if the last request for new memory was refused.
    pub is_short: bool,
    /// True after a wrong announcement: no memory becomes spare.
    pub is_off: bool,
    /// True if a piece keeps its memory when its last tensor is freed, until a request lacks memory
    /// (`idle.rs`).
    pub keeps_idle: bool,
    /// Number of events that are still to be recorded after [`BATCH`] pages.
    pub eager: u8,
    /// Largest [size](piece::SIZES) of pieces. It shrinks when a tensor gets memory of the host:
    /// smaller pieces keep less memory that no tensor uses.
    pub largest: u8,
    pub fences: Fences<D>,
    pub captures: Arc<OpenCaptures>,
    pub memories: Memories,
    /// Other devices that may access the memory.
    pub others: Vec<i32>,
    /// Number of the last segment.
    pub last: u64,
    pub moves: u64,
    /// Values of the clock at the last ticks of [`Elastic::decay`](super::Elastic::decay), the
    /// oldest first.
    pub ticks: VecDeque<u64>,
}

impl<D: Driver> State<D> {
    pub fn new(mode: Mode, captures: Arc<OpenCaptures>) -> Self {
        // In the mutex, the lock comes before the state.
        const { assert!(8 + offset_of!(Self, memories) <= 128) };
        State {
            mode,
            segments: Segments::default(),
            memories: Memories::new(),
            fences: Fences::default(),
            live_sum: LiveSum::default(),
            captures,
            others: Vec::new(),
            largest: piece::SIZES as u8 - 1,
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

    pub fn has_spare(&self) -> bool {
        self.memories.first_left().is_some()
    }

    /// Makes pieces of a segment without a tensor idle, or their memory spare.
    fn empty(&mut self, base: u64) {
        let all = self.segments.get(base).map_or(0..0, Segment::all);
        self.change(base, all, |_| ());
    }

    /// Changes the pieces on these pages of a segment. Pieces without a tensor become idle, or
    /// their memory spare.
    fn change(&mut self, base: u64, pages: Range<usize>, change: impl Fn(&mut Piece)) {
        let Some(segment) = self.segments.get_mut(base) else {
            return;
        };
        let keeps_all = segment.keeps_all() || self.is_off;
        let mut at = pages.start;
        while let Some((first, piece)) = segment.next_piece(at..pages.end) {
            at = first + piece.pages();
            change(piece);
            if !piece.is_idle() {
                continue;
            }
            self.clock += 1;
            piece.left = self.clock;
            if keeps_all {
                continue;
            }
            self.fences.left(piece.pages());
            if !self.keeps_idle {
                self.memories.release_from(piece);
            }
        }
    }

    /// Gives memory to a tensor that was allocated, for a stream if it is known.
    pub fn allocated(
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
                size: piece::size_for(pages.len(), self.largest.into()),
                // Another tensor may have the rest of the page, and live longer.
                splits: (
                    !address.is_multiple_of(PAGE),
                    !(address + bytes).is_multiple_of(PAGE),
                ),
                stream,
                tensors: 1,
                is_needed: true,
            };
            let backed = self.supply(driver, base, pages.clone(), wanted);
            // Each launch of the captured graph uses this memory again, without an announcement.
            if rules::pins_new_tensors(self.is_capturing()) {
                self.change(base, pages, |piece| piece.is_pinned |= piece.owns_memory);
            }
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

    /// Notes a tensor in its segment.
    fn enter(&mut self, address: u64, bytes: u64, allocation: &mut Allocation) -> Option<Trouble> {
        let Some(segment) = self.segments.around_mut(address) else {
            let reaches = self.segments.reach(address, bytes);
            return reaches.then_some(Trouble::Straddles(address));
        };
        if address + bytes > segment.end() || !segment.are_mapped(segment.pages_of(address, bytes))
        {
            return Some(Trouble::Straddles(address));
        }
        let before = segment.tensors.insert(address, bytes);
        let trouble = before.map(|_| Trouble::Overlaps(address));
        if segment.is_unproven && segment.base == address {
            segment.is_unproven = false;
            allocation.proves = true;
            let base = segment.base;
            self.empty(base);
        }
        trouble
    }

    /// Notes that a tensor was freed. `is_elsewhere`: work of other streams may use it.
    pub fn freed(
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

    /// Records events while memory is short or [`Mode::Least`] is set.
    fn tidy(&mut self, driver: &Pages<D>) {
        let batch = if self.eager > 0 { BATCH } else { LARGE_BATCH };
        if (self.is_short || self.mode == Mode::Least) && self.fences.open_pages() >= batch {
            self.eager = self.eager.saturating_sub(1);
            self.look(driver);
        }
    }

    /// Notes that memory was wanted before its work was complete, which is likely to happen again.
    pub fn is_behind(&mut self) {
        self.eager = EAGER;
    }

    /// Records an event for memory that has none, and polls the events.
    pub fn look(&mut self, driver: &Pages<D>) {
        let is_capturing = self.is_capturing();
        self.fences.close(driver, self.clock, is_capturing);
        self.fences.poll(driver, is_capturing);
    }

    /// Stops sharing, as the announcements cannot be trusted. Every page gets memory of its own, as
    /// far as there is some, and keeps it.
    pub fn switch_off(&mut self, driver: &Pages<D>) {
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

    /// Ends sharing: no memory stays spare, or mapped at two pieces.
    fn part(&mut self, driver: &Pages<D>) {
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

    /// Notes that a capture begins. Its graph may use the tensors that are live now.
    pub fn capture_began(&mut self, driver: &Pages<D>, capture: u64) {
        self.fences.poll(driver, self.is_capturing());
        self.captures.began(capture);
        let pieces = self.segments.values_mut().flat_map(Segment::pieces_mut);
        pieces.for_each(|piece| piece.is_pinned |= rules::pins_lives(piece.tensors > 0));
    }

    /// Bytes that pages could get, besides new memory, without taking any from a page in use.
    pub fn available(&self) -> u64 {
        if self.is_off {
            return 0;
        }
        // Once a request has lacked memory, no piece is idle.
        let idle = self.keeps_idle.then(|| self.idle()).into_iter().flatten();
        let idle = idle.map(|piece| (piece.left, self.memories.at(piece.memory)));
        if !self.is_capturing() {
            let idle = idle.map(|(_, memory)| memory.on_device());
            return self.memories.held.spare() + idle.sum::<u64>();
        }
        // No single event can be waited for.
        let spare = self
            .memories
            .spare()
            .map(|(_, memory)| (memory.left, memory));
        let usable = spare
            .chain(idle)
            .filter(|(left, _)| self.fences.is_over(*left));
        usable.map(|(_, memory)| memory.on_device()).sum()
    }

    /// Gives memory, which is in no list, to the piece at an address.
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
        let segment = self.segments.around(address)?;
        let page = segment.index(address);
        if address >= segment.base + segment.bytes || !segment.are_mapped(page..page + 1) {
            return None;
        }
        let backed = if segment.has_memory(page) {
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

    /// Addresses and bytes of the pieces of a pinned segment. `None`: it is not pinned, or not all
    /// of it is memory of the device.
    pub fn backing(&self, address: u64) -> Option<Vec<(u64, u64)>> {
        let segment = self
            .segments
            .around(address)
            .filter(|segment| segment.is_pinned)?;
        if segment.gap(segment.all()).is_some() {
            return None;
        }
        let memory = segment.pieces().map(|(first, piece)| {
            let memory = self.memories.at(piece.memory).handle;
            (!memory.is_host).then_some((segment.address(first), memory.bytes))
        });
        memory.collect()
    }

    pub fn stats(&self) -> Stats {
        let held = self.memories.held;
        let bytes = |piece: &Piece| self.memories.at(piece.memory).on_device();
        let idle: u64 = self.idle().map(bytes).sum();
        let all = self.memories.all();
        let mut stats = Stats {
            held: held.now,
            in_use: held.kept - idle,
            spare: held.spare() + idle,
            on_host: all
                .map(|memory| memory.handle.bytes - memory.on_device())
                .sum(),
            moves: self.moves,
            ..Stats::default()
        };
        for segment in self.segments.values() {
            stats.segments += segment.mapped_bytes();
            let own = segment.pieces().filter(|(_, piece)| {
                piece.owns_memory && !self.memories.at(piece.memory).handle.is_host
            });
            let keeps_all = segment.keeps_all() || self.is_off;
            let stays = own.filter(|(_, piece)| {
                piece.is_pinned || segment.is_pinned || piece.tensors == 0 && keeps_all
            });
            stats.pinned += PAGE * stays.map(|(_, piece)| piece.pages() as u64).sum::<u64>();
        }
        let of_device = |(_, memory): (Id, &Memory)| memory.on_device();
        debug_assert_eq!(held.spare(), self.memories.spare().map(of_device).sum());
        stats
    }
}
