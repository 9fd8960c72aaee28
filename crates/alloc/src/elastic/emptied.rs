//! Pieces without a tensor, by whether the work that used them is over.
//!
//! An event that is recorded after a piece was emptied completes after the work on it. Pieces share events: those that were
//! emptied since the last one wait in a batch until the next one is recorded. Entries are left behind when a piece gets a
//! tensor again; they are told by their stamps.

use std::collections::VecDeque;

use super::driver::PageDriver;
use super::piece::SIZES;
use crate::rules::{self, Call};

/// A piece that was emptied.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// Where it begins.
    pub address: u64,
    /// When it was emptied.
    pub stamp: u64,
    /// Its [size](super::piece::SIZES).
    pub size: usize,
}

/// Events that are waiting, at most: pieces wait for the next one then.
const MOST_EVENTS: usize = 1024;

/// An event, and the pieces that were emptied before it.
struct Fence<E> {
    event: E,
    pieces: Vec<Entry>,
}

/// Pieces in the order in which they were emptied.
pub(super) struct Emptied<E> {
    /// Since the last event.
    open: Vec<Entry>,
    /// Pages of those.
    open_pages: usize,
    fences: VecDeque<Fence<E>>,
    /// The work on these is over: by size.
    ready: [VecDeque<Entry>; SIZES],
}

impl<E> Default for Emptied<E> {
    fn default() -> Self {
        Emptied {
            open: Vec::new(),
            open_pages: 0,
            fences: VecDeque::new(),
            ready: Default::default(),
        }
    }
}

impl<E: Copy> Emptied<E> {
    /// A piece was emptied just now.
    pub fn add(&mut self, entry: Entry) {
        if rules::needs_page_fence() {
            self.open_pages += 1 << entry.size;
            self.open.push(entry);
        } else {
            self.ready[entry.size].push_back(entry);
        }
    }

    /// Pages that wait for an event to be recorded, at most.
    pub fn open_pages(&self) -> usize {
        self.open_pages
    }

    /// Drops entries that are left behind.
    pub fn retain(&mut self, is_valid: impl Fn(&Entry) -> bool) {
        self.open.retain(&is_valid);
        self.open_pages = self.open.iter().map(|entry| 1 << entry.size).sum();
        for fence in &mut self.fences {
            fence.pieces.retain(&is_valid);
        }
        for ready in &mut self.ready {
            ready.retain(&is_valid);
        }
    }

    /// The piece that was emptied first of those whose work is over. It may be left behind.
    pub fn next_ready(&mut self) -> Option<Entry> {
        let stamp = |ready: &VecDeque<Entry>| ready.front().map_or(u64::MAX, |entry| entry.stamp);
        let first = self.ready.iter_mut().min_by_key(|ready| stamp(ready))?;
        first.pop_front()
    }

    /// The same of one size.
    pub fn next_ready_of(&mut self, size: usize) -> Option<Entry> {
        self.ready[size].pop_front()
    }

    /// Whether such a piece was emptied at this time or before.
    pub fn is_next_before(&self, time: u64) -> bool {
        let mut firsts = self.ready.iter().filter_map(VecDeque::front);
        firsts.any(|entry| entry.stamp <= time)
    }

    /// Those whose work is over.
    pub fn ready(&self) -> impl Iterator<Item = &Entry> {
        self.ready.iter().flatten()
    }

    /// Records an event for what has none, unless a stream captures.
    pub fn close<D: PageDriver<Event = E>>(&mut self, driver: &D, is_capturing: bool) {
        if self.open.is_empty()
            || self.fences.len() >= MOST_EVENTS
            || !rules::may_call(Call::Fence, is_capturing)
        {
            return;
        }
        // What cannot be recorded now can later.
        if let Ok(event) = driver.record() {
            let pieces = std::mem::take(&mut self.open);
            self.open_pages = 0;
            self.fences.push_back(Fence { event, pieces });
        }
    }

    /// Looks which events have completed, unless a stream captures.
    pub fn poll<D: PageDriver<Event = E>>(&mut self, driver: &D, is_capturing: bool) {
        if !rules::may_call(Call::Query, is_capturing) {
            return;
        }
        // A later event covers what an earlier one does.
        while let Some(first) = self.fences.front()
            && matches!(driver.is_complete(first.event), Ok(true))
        {
            self.completed(driver);
        }
    }

    /// Waits for the first event, unless a stream captures. False if there is none, or it cannot be waited for.
    pub fn wait<D: PageDriver<Event = E>>(&mut self, driver: &D, is_capturing: bool) -> bool {
        if self.fences.is_empty() {
            self.close(driver, is_capturing);
        }
        let Some(first) = self.fences.front() else {
            return false;
        };
        if !rules::may_call(Call::Wait, is_capturing) || driver.wait(first.event).is_err() {
            return false;
        }
        self.completed(driver);
        true
    }

    fn completed<D: PageDriver<Event = E>>(&mut self, driver: &D) {
        if let Some(fence) = self.fences.pop_front() {
            driver.retire(fence.event);
            for entry in fence.pieces {
                self.ready[entry.size].push_back(entry);
            }
        }
    }

    /// Forgets all pieces.
    pub fn clear<D: PageDriver<Event = E>>(&mut self, driver: &D) {
        for fence in self.fences.drain(..) {
            driver.retire(fence.event);
        }
        self.open.clear();
        self.open_pages = 0;
        self.ready.iter_mut().for_each(VecDeque::clear);
    }
}
