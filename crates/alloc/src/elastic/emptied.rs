//! Pages without a tensor, by whether the work that used them is over.
//!
//! An event that is recorded after a page was emptied completes after the work on it. Pages share events: those that were
//! emptied since the last one wait in a batch until the next one is recorded. Entries are left behind when a page gets a
//! tensor again; they are told by their stamps.

use std::collections::VecDeque;

use super::driver::PageDriver;
use crate::rules::{self, Call};

/// A page by its address, and when it was emptied.
pub(super) type Entry = (u64, u64);

/// Events that are waiting, at most: pages wait for the next one then.
const MOST_EVENTS: usize = 64;

/// An event, and the pages that were emptied before it.
struct Fence<E> {
    event: E,
    pages: Vec<Entry>,
}

/// Pages in the order in which they were emptied.
pub(super) struct Emptied<E> {
    /// Since the last event.
    open: Vec<Entry>,
    fences: VecDeque<Fence<E>>,
    /// The work on these is over.
    ready: VecDeque<Entry>,
}

impl<E> Default for Emptied<E> {
    fn default() -> Self {
        Emptied {
            open: Vec::new(),
            fences: VecDeque::new(),
            ready: VecDeque::new(),
        }
    }
}

impl<E: Copy> Emptied<E> {
    /// A page was emptied just now.
    pub fn add(&mut self, entry: Entry) {
        if rules::needs_page_fence() {
            self.open.push(entry);
        } else {
            self.ready.push_back(entry);
        }
    }

    /// Pages that wait for an event to be recorded, at most.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Drops entries that are left behind.
    pub fn retain(&mut self, is_valid: impl Fn(&Entry) -> bool) {
        self.open.retain(&is_valid);
        for fence in &mut self.fences {
            fence.pages.retain(&is_valid);
        }
        self.ready.retain(&is_valid);
    }

    /// The page that was emptied first of those whose work is over. It may be left behind.
    pub fn next_ready(&mut self) -> Option<Entry> {
        self.ready.pop_front()
    }

    /// Whether that page was emptied at this time or before.
    pub fn is_next_before(&self, time: u64) -> bool {
        self.ready.front().is_some_and(|(_, stamp)| *stamp <= time)
    }

    /// Those whose work is over.
    pub fn ready(&self) -> impl Iterator<Item = &Entry> {
        self.ready.iter()
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
            let pages = std::mem::take(&mut self.open);
            self.fences.push_back(Fence { event, pages });
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
            self.ready.extend(fence.pages);
        }
    }

    /// Forgets all pages.
    pub fn clear<D: PageDriver<Event = E>>(&mut self, driver: &D) {
        for fence in self.fences.drain(..) {
            driver.retire(fence.event);
        }
        self.open.clear();
        self.ready.clear();
    }
}
