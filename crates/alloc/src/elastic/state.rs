//! What is known of all segments of a device, and what announcements change.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::books::Books;
use super::driver::{Handle, PAGE, PageDriver};
use super::emptied::{Emptied, Entry};
use super::segment::{Page, Segment};
use super::types::{Born, Found, Mode, Stats, Trouble};
use crate::rules;

/// Pages that are emptied before an event is recorded for them, while memory is short: an event costs a third of a
/// microsecond, and a page that has none must be waited for longer.
const BATCH: usize = 16;
/// Pages that are emptied until entries that were left behind are looked for, at least; and twice as many as there are pages.
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
    /// Memory that is mapped nowhere, for the next page.
    pub spare: Vec<Handle>,
    /// The last request for new memory was refused.
    pub is_short: bool,
    /// The announcements were wrong: nothing is hollowed.
    pub is_off: bool,
    /// Counts what pages are emptied by: one for each entry.
    pub clock: u64,
    /// The clock when entries that were left behind were dropped last.
    pub swept: u64,
    /// Pages of all segments.
    pub pages: usize,
    /// Counts segments.
    pub last: u64,
    pub moves: u64,
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
            spare: Vec::new(),
            is_short: false,
            is_off: false,
            clock: 0,
            swept: 0,
            pages: 0,
            last: 0,
            moves: 0,
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

    /// The page of an entry, if it was not left behind: its segment and its place there.
    pub fn page_of(&self, (address, stamp): &Entry) -> Option<(u64, usize)> {
        let segment = self.around(*address)?;
        let index = ((address - segment.base) / PAGE) as usize;
        let is_it = segment.pages[index].emptied == *stamp && segment.is_hollow(index);
        is_it.then_some((segment.base, index))
    }

    pub fn page_mut(&mut self, base: u64, index: usize) -> Option<&mut Page> {
        self.segments.get_mut(&base)?.pages.get_mut(index)
    }

    /// Notes that pages of a segment have no tensor any more, those of them that may give their memory away.
    pub fn empty(&mut self, base: u64, pages: std::ops::Range<usize>) {
        for index in pages {
            let Some(segment) = self.segments.get_mut(&base) else {
                return;
            };
            if segment.is_hollow(index) {
                self.clock += 1;
                segment.pages[index].emptied = self.clock;
                self.emptied.add((segment.address(index), self.clock));
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
            let end = pages.end.min(segment.pages.len());
            let backed = self.back(driver, base, pages.start..end, true);
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
        for page in &mut segment.pages[pages] {
            page.tensors += 1;
            page.emptied = 0;
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
        for page in &mut segment.pages[pages.clone()] {
            page.tensors = rules::without_one(page.tensors);
        }
        self.empty(base, pages);
        None
    }

    /// Records events while memory is short, and drops what was left behind.
    fn tidy<D: PageDriver<Event = E>>(&mut self, driver: &D) {
        if (self.is_short || self.mode == Mode::Least) && self.emptied.open() >= BATCH {
            self.emptied.poll(driver, self.is_capturing());
            self.emptied.close(driver, self.is_capturing());
        }
        if self.clock - self.swept > (LEFT_BEHIND + 2 * self.pages) as u64 {
            self.swept = self.clock;
            let mut emptied = std::mem::take(&mut self.emptied);
            emptied.retain(|entry| self.page_of(entry).is_some());
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
            self.back(driver, base, 0..pages, false);
        }
    }

    /// A capture is about to begin: its graph may use what lives now.
    pub fn capture_begins<D: PageDriver<Event = E>>(&mut self, driver: &D) {
        self.emptied.poll(driver, self.is_capturing());
        self.captures.fetch_add(1, Ordering::AcqRel);
        for page in self
            .segments
            .values_mut()
            .flat_map(|segment| &mut segment.pages)
        {
            page.is_pinned |= rules::pins_lives(page.tensors > 0);
        }
    }

    /// Bytes that pages could get without a page in use losing its memory, besides new ones.
    pub fn available(&self) -> u64 {
        let hollow = if self.is_off {
            0
        } else if self.is_capturing() {
            // Nothing can be waited for.
            let is_ready = |entry: &&Entry| self.is_on_device(entry);
            self.emptied.ready().filter(is_ready).count()
        } else {
            let all = self.segments.values();
            all.map(|segment| {
                let on_device =
                    |index: &usize| segment.pages[*index].memory.is_some_and(|m| !m.is_host);
                let hollow = (0..segment.pages.len()).filter(|index| segment.is_hollow(*index));
                hollow.filter(on_device).count()
            })
            .sum()
        };
        (hollow + self.spare.len()) as u64 * PAGE
    }

    fn is_on_device(&self, entry: &Entry) -> bool {
        let page = self.page_of(entry);
        let memory = page.and_then(|(base, index)| self.segments.get(&base)?.pages[index].memory);
        memory.is_some_and(|memory| !memory.is_host)
    }

    pub fn find(&self, address: u64) -> Option<Found> {
        let segment = self
            .around(address)
            .filter(|s| address < s.base + s.bytes)?;
        let here = ((address - segment.base) / PAGE) as usize;
        let backed = if segment.pages[here].memory.is_some() {
            Some(address)
        } else {
            let other = segment.pages.iter().position(|page| page.memory.is_some());
            other.map(|index| segment.address(index))
        };
        Some(Found {
            base: segment.base,
            bytes: segment.bytes,
            number: segment.number,
            backed,
        })
    }

    /// The memory of a pinned segment, page by page. `None`: it is not pinned, or not all of it is memory of the device.
    pub fn backing(&self, address: u64) -> Option<Vec<u64>> {
        let segment = self.around(address).filter(|segment| segment.is_pinned)?;
        let of_device = |page: &Page| page.memory.filter(|memory| !memory.is_host);
        let pages = segment.pages.iter().map(of_device);
        pages.map(|memory| Some(memory?.number)).collect()
    }

    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            moves: self.moves,
            held: self.spare.len() as u64 * PAGE,
            ..Stats::default()
        };
        for segment in self.segments.values() {
            stats.segments += segment.bytes;
            for (index, page) in segment.pages.iter().enumerate() {
                match page.memory {
                    None => continue,
                    Some(memory) if memory.is_host => {
                        stats.on_host += PAGE;
                        continue;
                    }
                    Some(_) => stats.held += PAGE,
                }
                if segment.is_hollow(index) && !self.is_off {
                    stats.hollow += PAGE;
                    continue;
                }
                stats.in_use += PAGE;
                if page.tensors == 0 || page.is_pinned || segment.is_pinned {
                    stats.pinned += PAGE;
                }
            }
        }
        stats
    }
}
