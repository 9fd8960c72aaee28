//! Where the memory for pages comes from.

use std::ops::Range;

use super::driver::{Handle, PAGE, PageDriver};
use super::emptied::Entry;
use super::piece::{self, SIZES, bytes_of};
use super::state::State;
use super::types::Mode;

/// What came of backing pages, in pages.
#[derive(Clone, Copy, Default)]
pub(super) struct Backed {
    pub on_host: u32,
    pub missing: u32,
}

impl<E: Copy> State<E> {
    /// Gives memory to those of a segment's pages that have none, in pieces of this [size](SIZES) or smaller; the host's, too,
    /// if `is_needed`. None of the pages may be hollow.
    pub fn back<D: PageDriver<Event = E>>(
        &mut self,
        driver: &D,
        base: u64,
        pages: Range<usize>,
        size: usize,
        is_needed: bool,
    ) -> Backed {
        let mut backed = Backed::default();
        // Pages side by side that were mapped, and not enabled yet.
        let mut run = pages.start..pages.start;
        let mut at = pages.start;
        while at < pages.end {
            let room = self.without_memory(base, at..pages.end.min(at + (1 << size)));
            if room == 0 {
                at += 1;
                continue;
            }
            if run.end != at {
                self.enable(driver, base, run, &mut backed);
                run = at..at;
            }
            let size = size.min(piece::fitting(room));
            let Some(memory) = self.obtain(driver, size, is_needed) else {
                backed.missing += 1;
                at += 1;
                if is_needed {
                    continue;
                }
                // The other pages will not get any either.
                break;
            };
            let count = piece::pages_of(memory);
            if driver.map(base + at as u64 * PAGE, memory).is_err() {
                driver.destroy(memory);
                backed.missing += count as u32;
                at += count;
                continue;
            }
            backed.on_host += u32::from(memory.is_host);
            if let Some(segment) = self.segments.get_mut(&base) {
                self.held.put(&segment.put(at, memory));
            }
            at += count;
            run.end = at;
        }
        self.enable(driver, base, run, &mut backed);
        backed
    }

    /// How many of a segment's pages have no memory before the first that has.
    fn without_memory(&self, base: u64, pages: Range<usize>) -> usize {
        self.segments.get(&base).map_or(0, |segment| {
            let pages = segment.pages[pages].iter();
            pages.take_while(|page| page.piece.is_none()).count()
        })
    }

    /// Enables pages that were mapped; if the driver refuses, they have no memory after all.
    fn enable<D: PageDriver<Event = E>>(
        &mut self,
        driver: &D,
        base: u64,
        run: Range<usize>,
        backed: &mut Backed,
    ) {
        if run.is_empty() {
            return;
        }
        let address = |index: usize| base + index as u64 * PAGE;
        let bytes = run.len() as u64 * PAGE;
        if driver
            .allow(address(run.start), bytes, &self.others)
            .is_ok()
        {
            return;
        }
        backed.missing += run.len() as u32;
        let Some(segment) = self.segments.get_mut(&base) else {
            return;
        };
        let pieces = segment.pieces().filter(|(first, _)| run.contains(first));
        let pieces: Vec<_> = pieces.map(|(first, piece)| (first, piece.memory)).collect();
        for (first, memory) in pieces {
            if driver.unmap(address(first), memory).is_ok()
                && let Some(piece) = segment.take(first)
            {
                self.held.take(&piece);
                driver.destroy(memory);
            }
        }
    }

    /// Memory of this size, or smaller; the host's, too, if `is_needed`.
    fn obtain<D: PageDriver<Event = E>>(
        &mut self,
        driver: &D,
        size: usize,
        is_needed: bool,
    ) -> Option<Handle> {
        let exceeds = self.mode == Mode::Least && self.held.exceeds(bytes_of(size));
        let hollow_first = self.is_short || exceeds;
        if hollow_first && let Some(memory) = self.reuse(driver, size) {
            return Some(memory);
        }
        let new = create(driver, size);
        self.is_short = new.is_none();
        if new.is_some() {
            return new;
        }
        if let Some(memory) = self.reuse(driver, size) {
            return Some(memory);
        }
        if let Some(memory) = create_up_to(driver, size) {
            return Some(memory);
        }
        if driver.make_room()
            && let Some(memory) = create_up_to(driver, size)
        {
            return Some(memory);
        }
        while !self.is_off && self.emptied.wait(driver, self.is_capturing()) {
            if let Some(memory) = self.reuse(driver, size) {
                return Some(memory);
            }
        }
        if !is_needed {
            return None;
        }
        Some(Handle {
            number: driver.create_on_host().ok()?,
            bytes: PAGE,
            is_host: true,
        })
    }

    /// The memory of hollow pieces whose work is over, as one of this size or smaller.
    fn reuse<D: PageDriver<Event = E>>(&mut self, driver: &D, size: usize) -> Option<Handle> {
        self.reuse_ready(driver, size).or_else(|| {
            self.look(driver);
            self.reuse_ready(driver, size)
        })
    }

    fn reuse_ready<D: PageDriver<Event = E>>(&mut self, driver: &D, size: usize) -> Option<Handle> {
        if let Some(memory) = self.take_ready(driver, size) {
            return Some(memory);
        }
        // A larger one is made smaller, or smaller ones one.
        let mut bytes = 0;
        let others = (size + 1..SIZES).chain((0..size).rev());
        let next = |state: &mut Self| {
            others
                .clone()
                .find_map(|size| state.take_ready(driver, size))
        };
        while let Some(memory) = next(self) {
            driver.destroy(memory);
            bytes += memory.bytes;
            if bytes >= bytes_of(size)
                && let Some(memory) = create(driver, size)
            {
                return Some(memory);
            }
        }
        let size = size.min(piece::fitting((bytes / PAGE) as usize));
        (bytes > 0).then(|| create_up_to(driver, size))?
    }

    /// Records an event for what has none, and looks which have completed.
    fn look<D: PageDriver<Event = E>>(&mut self, driver: &D) {
        if !self.is_off {
            self.emptied.close(driver, self.is_capturing());
            self.emptied.poll(driver, self.is_capturing());
        }
    }

    /// The memory of the piece of this size that was emptied first, of those whose work is over.
    fn take_ready<D: PageDriver<Event = E>>(&mut self, driver: &D, size: usize) -> Option<Handle> {
        while !self.is_off {
            let entry = self.emptied.next_ready_of(size)?;
            if let Some(memory) = self.take(driver, &entry) {
                return Some(memory);
            }
        }
        None
    }

    /// Takes the memory of the piece that was emptied first, of those whose work is over.
    pub fn hollow_out<D: PageDriver<Event = E>>(&mut self, driver: &D) -> Option<Handle> {
        let mut has_looked = false;
        while !self.is_off {
            if self.emptied.is_next_before(u64::MAX) {
                if let Some(memory) = self.take_next(driver) {
                    return Some(memory);
                }
            } else if std::mem::replace(&mut has_looked, true) {
                return None;
            } else {
                self.look(driver);
            }
        }
        None
    }

    /// Takes the memory of the next piece whose work is over. `None`: it has none for other pages. Memory of the host goes
    /// back.
    pub fn take_next<D: PageDriver<Event = E>>(&mut self, driver: &D) -> Option<Handle> {
        let entry = self.emptied.next_ready()?;
        self.take(driver, &entry)
    }

    /// Takes the memory of a piece. `None`: it was left behind, or is the host's, which goes back.
    fn take<D: PageDriver<Event = E>>(&mut self, driver: &D, entry: &Entry) -> Option<Handle> {
        let (segment, first, piece) = self.piece_of(entry)?;
        let (base, memory) = (segment.base, piece.memory);
        let is_unmapped = driver.unmap(entry.address, memory).is_ok();
        let segment = self.segments.get_mut(&base)?;
        if !is_unmapped {
            // It would be refused again.
            self.held
                .keep(segment.change(first, |page| page.is_pinned = true));
            return None;
        }
        self.held.take(&segment.take(first)?);
        if memory.is_host {
            driver.destroy(memory);
            return None;
        }
        self.moves += 1;
        Some(memory)
    }
}

/// New memory of this size.
fn create<D: PageDriver>(driver: &D, size: usize) -> Option<Handle> {
    let bytes = bytes_of(size);
    let number = driver.create(bytes).ok()?;
    Some(Handle {
        number,
        bytes,
        is_host: false,
    })
}

/// New memory of this size, or of the largest below it that there is.
fn create_up_to<D: PageDriver>(driver: &D, size: usize) -> Option<Handle> {
    (0..=size).rev().find_map(|size| create(driver, size))
}
