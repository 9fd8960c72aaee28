//! What is known of all segments of a device, and what announcements change.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::books::Books;
use super::driver::{Handle, PAGE, PageDriver};
use super::emptied::{Emptied, Entry};
use super::held::Held;
use super::piece::{self, Piece};
use super::segment::{Page, Segment};
use super::types::{Born, Found, Mode, Stats, Trouble};
use crate::rules;

/// Pages that are emptied before an event is recorded for them, while memory is short: an event costs a third of a
/// microsecond, and a page that has none must be waited for longer.
const BATCH: usize = 16;
/// Pieces that are emptied until entries that were left behind are looked for, at least; and twice as many as there are pages.
const LEFT_BEHIND: usize = 1024;

/// All of it, under one lock.
pub(super) struct State<E> {
    pub mode: Mode,
    pub segments: BTreeMap<u64, Segment>,
    pub emptied: Emptied<E>,
    pub books: Books,
    /// Captures that are open.
    pub captures: Arc<AtomicU32>,
    /// Other devices that may use the memory.
    pub others: Vec<i32>,
    /// The [size](piece::SIZES) of pieces, at most. Smaller once a tensor got memory of the host: smaller pieces keep less that no
    /// tensor uses.
    pub largest: usize,
    /// The last request for new memory was refused.
    pub is_short: bool,
    /// The announcements were wrong: nothing is hollowed.
    pub is_off: bool,
    /// Counts what pieces are emptied by: one for each entry.
    pub clock: u64,
    /// The clock when entries that were left behind were dropped last.
    pub swept: u64,
    /// Pages of all segments.
    pub pages: usize,
    /// Counts segments.
    pub last: u64,
    pub moves: u64,
    pub held: Held,
    /// The clock at the last ticks of [`Elastic::decay`](super::Elastic::decay), the oldest first.
    pub ticks: VecDeque<u64>,
}

impl<E: Copy> State<E> {
    pub fn new(mode: Mode, captures: Arc<AtomicU32>) -> Self {
        State {
            mode,
            segments: BTreeMap::new(),
            emptied: Emptied::default(),
            books: Books::default(),
            captures,
            others: Vec::new(),
            largest: piece::SIZES - 1,
            is_short: false,
            is_off: false,
            clock: 0,
            swept: 0,
            pages: 0,
            last: 0,
            moves: 0,
            held: Held::default(),
            ticks: VecDeque::new(),
        }
    }

    pub fn is_capturing(&self) -> bool {
        self.captures.load(Ordering::Acquire) > 0
    }

    /// The segment that an address is in.
    pub fn around(&self, address: u64) -> Option<&Segment> {
        let (_, segment) = self.segments.range(..=address).next_back()?;
        segment.contains(address).then_some(segment)
    }

    fn around_mut(&mut self, address: u64) -> Option<&mut Segment> {
        let (_, segment) = self.segments.range_mut(..=address).next_back()?;
        segment.contains(address).then_some(segment)
    }

    /// The piece of an entry, if it was not left behind: its segment and the page there that it begins on.
    pub fn piece_of(&self, entry: &Entry) -> Option<(&Segment, usize, &Piece)> {
        let segment = self.around(entry.address)?;
        let first = ((entry.address - segment.base) / PAGE) as usize;
        let piece = segment.pieces.get(first)?.as_ref()?;
        let is_it = piece.emptied == entry.stamp && segment.is_hollow(piece);
        is_it.then_some((segment, first, piece))
    }

    /// Notes the pieces on these pages of a segment that may give their memory away from here on.
    fn empty(&mut self, base: u64, pages: Range<usize>) {
        let Some(segment) = self.segments.get_mut(&base) else {
            return;
        };
        if segment.keeps_all() {
            return;
        }
        let mut at = pages.start;
        while at < pages.end {
            let Some(first) = segment.pages[at].piece else {
                at += 1;
                continue;
            };
            let Some(piece) = segment.pieces[first].as_mut() else {
                return;
            };
            at = first + piece::pages_of(piece.memory);
            if piece.kept == 0 && piece.emptied == 0 {
                self.clock += 1;
                piece.emptied = self.clock;
                self.emptied.add(Entry {
                    address: base + first as u64 * PAGE,
                    stamp: self.clock,
                    size: piece::size_of(piece.memory),
                });
            }
        }
    }

    /// A tensor was born.
    pub fn born<D: PageDriver<Event = E>>(
        &mut self,
        driver: &D,
        address: u64,
        bytes: u64,
        total: u64,
    ) -> Born {
        let mut born = Born::default();
        let trouble = self.books.born(bytes, total);
        let trouble = trouble.or(self.enter(address, bytes, &mut born));
        if let Some(trouble) = trouble.filter(|_| !self.is_off) {
            born.trouble = Some(trouble);
            self.switch_off(driver);
        }
        if let Some(segment) = self.around(address) {
            let (base, pages) = (segment.base, segment.pages_of(address, bytes));
            let pages = pages.start..pages.end.min(segment.pages.len());
            let size = piece::size_for(pages.len(), self.largest);
            let backed = self.back(driver, base, pages, size, true);
            if backed.on_host > 0 {
                self.largest = self.largest.saturating_sub(1);
            }
            (born.on_host, born.missing) = (backed.on_host, backed.missing);
        }
        self.tidy(driver);
        born
    }

    /// Counts a tensor on its pages.
    fn enter(&mut self, address: u64, bytes: u64, born: &mut Born) -> Option<Trouble> {
        let is_capturing = self.is_capturing();
        let Some(segment) = self.around_mut(address) else {
            let next = self.segments.range(address..).next();
            let reaches = next.is_some_and(|(base, _)| *base < address.saturating_add(bytes));
            return reaches.then_some(Trouble::Straddles(address));
        };
        if address + bytes > segment.base + segment.reserved() {
            return Some(Trouble::Straddles(address));
        }
        let trouble = segment
            .overlaps(address, bytes)
            .then_some(Trouble::Overlaps(address));
        segment.tensors.insert(address, bytes);
        let pages = segment.pages_of(address, bytes);
        let mut kept = 0;
        for index in pages {
            kept += segment.change(index, |page| page.tensors += 1);
        }
        // Each launch of the captured graph uses this memory again, without an announcement.
        if rules::pins_births(is_capturing) {
            segment.is_pinned = true;
        }
        if segment.is_unproven && segment.base == address {
            segment.is_unproven = false;
            born.proves = true;
            let (base, all) = (segment.base, 0..segment.pages.len());
            self.empty(base, all);
        }
        self.held.keep(kept);
        trouble
    }

    /// A tensor died.
    pub fn died<D: PageDriver<Event = E>>(
        &mut self,
        driver: &D,
        address: u64,
        bytes: u64,
        total: u64,
    ) -> Option<Trouble> {
        let trouble = self.books.died(bytes, total);
        let trouble = trouble
            .or(self.leave(address, bytes))
            .filter(|_| !self.is_off);
        if trouble.is_some() {
            self.switch_off(driver);
        }
        self.tidy(driver);
        trouble
    }

    /// Takes a tensor off its pages.
    fn leave(&mut self, address: u64, bytes: u64) -> Option<Trouble> {
        let segment = self.around_mut(address)?;
        match segment.tensors.remove(&address) {
            None => return Some(Trouble::Unborn(address)),
            Some(size) if size != bytes => return Some(Trouble::Resized(address)),
            Some(_) => {}
        }
        let (base, pages) = (segment.base, segment.pages_of(address, bytes));
        let mut kept = 0;
        for index in pages.clone() {
            kept += segment.change(index, |page| {
                page.tensors = rules::without_one(page.tensors)
            });
        }
        self.held.keep(kept);
        self.empty(base, pages);
        None
    }

    /// Records events while memory is short, and drops what was left behind.
    fn tidy<D: PageDriver<Event = E>>(&mut self, driver: &D) {
        if (self.is_short || self.mode == Mode::Least) && self.emptied.open_pages() >= BATCH {
            self.emptied.poll(driver, self.is_capturing());
            self.emptied.close(driver, self.is_capturing());
        }
        if self.clock - self.swept > (LEFT_BEHIND + 2 * self.pages) as u64 {
            self.swept = self.clock;
            let mut emptied = std::mem::take(&mut self.emptied);
            emptied.retain(|entry| self.piece_of(entry).is_some());
            self.emptied = emptied;
        }
    }

    /// The announcements cannot be trusted: every page gets memory again, as far as there is some, and keeps it.
    pub fn switch_off<D: PageDriver<Event = E>>(&mut self, driver: &D) {
        self.is_off = true;
        self.emptied.clear(driver);
        if !rules::must_restore() {
            return;
        }
        let all: Vec<(u64, usize)> = self
            .segments
            .iter()
            .map(|(base, s)| (*base, s.pages.len()))
            .collect();
        for (base, pages) in all {
            self.back(driver, base, 0..pages, 0, false);
        }
    }

    /// A capture is about to begin: its graph may use what lives now.
    pub fn capture_begins<D: PageDriver<Event = E>>(&mut self, driver: &D) {
        self.emptied.poll(driver, self.is_capturing());
        self.captures.fetch_add(1, Ordering::AcqRel);
        for segment in self.segments.values_mut() {
            for index in 0..segment.pages.len() {
                segment.change(index, |page| {
                    page.is_pinned |= rules::pins_lives(page.tensors > 0);
                });
            }
        }
    }

    /// Bytes that pages could get without a page in use losing its memory, besides new ones.
    pub fn available(&self) -> u64 {
        if self.is_off {
            return 0;
        }
        if self.is_capturing() {
            // Nothing can be waited for.
            let ready = self.emptied.ready();
            let pieces = ready.filter_map(|entry| self.piece_of(entry));
            return pieces.map(|(_, _, piece)| piece.on_device()).sum();
        }
        let of_segment = |segment: &Segment| -> u64 {
            let pieces = segment.pieces().map(|(_, piece)| piece);
            let hollow = pieces.filter(|piece| segment.is_hollow(piece));
            hollow.map(Piece::on_device).sum()
        };
        self.segments.values().map(of_segment).sum()
    }

    pub fn find(&self, address: u64) -> Option<Found> {
        let segment = self
            .around(address)
            .filter(|s| address < s.base + s.bytes)?;
        let here = ((address - segment.base) / PAGE) as usize;
        let backed = if segment.pages[here].piece.is_some() {
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
        let segment = self.around(address).filter(|segment| segment.is_pinned)?;
        if segment.pages.iter().any(|page| page.piece.is_none()) {
            return None;
        }
        let of_device =
            |(_, piece): (usize, &Piece)| (!piece.memory.is_host).then_some(piece.memory);
        segment.pieces().map(of_device).collect()
    }

    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            moves: self.moves,
            ..Stats::default()
        };
        for segment in self.segments.values() {
            stats.segments += segment.bytes;
            for (first, piece) in segment.pieces() {
                let bytes = piece.memory.bytes;
                if piece.memory.is_host {
                    stats.on_host += bytes;
                    continue;
                }
                stats.held += bytes;
                if segment.is_hollow(piece) && !self.is_off {
                    stats.hollow += bytes;
                    continue;
                }
                stats.in_use += bytes;
                let pages = &segment.pages[first..][..piece::pages_of(piece.memory)];
                let is_pinned = |page: &&Page| {
                    page.tensors == 0 && piece.kept == 0 || page.is_pinned || segment.is_pinned
                };
                stats.pinned += PAGE * pages.iter().filter(is_pinned).count() as u64;
            }
        }
        debug_assert_eq!(stats.held, self.held.now);
        stats
    }
}
