//! Which memory's work is over.
//!
//! Times count how often memory was left. An event that is recorded after memory was left completes after the work on it, and
//! after all that was left before.

use std::collections::VecDeque;

use super::pages::Pages;
use crate::driver::Driver;
use crate::rules::{self, Call};

/// Events that are waiting, at most: what is left later waits for the next one then.
const MOST_EVENTS: usize = 1024;

/// Events, in the order of the times that they stand for.
pub(super) struct Fences<E> {
    events: VecDeque<(u64, E)>,
    /// The time that the last event stands for.
    recorded: u64,
    /// The work on what was left until then is over.
    over: u64,
    /// Pages that were left since the last event.
    open_pages: usize,
}

impl<E> Default for Fences<E> {
    fn default() -> Self {
        Fences {
            events: VecDeque::new(),
            recorded: 0,
            over: 0,
            open_pages: 0,
        }
    }
}

impl<E: Copy> Fences<E> {
    /// Whether the work on what was left at a time is over, as far as is known.
    pub fn is_over(&self, time: u64) -> bool {
        time <= self.over || !rules::needs_page_fence()
    }

    /// So many pages were left.
    pub fn left(&mut self, pages: usize) {
        self.open_pages += pages;
    }

    /// Pages that were left since the last event.
    pub fn open_pages(&self) -> usize {
        self.open_pages
    }

    /// Records an event for what has none, unless a stream captures.
    pub fn close<D: Driver<Event = E>>(&mut self, driver: &Pages<D>, now: u64, is_capturing: bool) {
        if now <= self.recorded
            || self.events.len() >= MOST_EVENTS
            || !rules::may_call(Call::Fence, is_capturing)
        {
            return;
        }
        // What cannot be recorded now can later.
        if let Ok(event) = driver.record() {
            self.open_pages = 0;
            self.recorded = now;
            self.events.push_back((now, event));
        }
    }

    /// Looks which events have completed, unless a stream captures.
    pub fn poll<D: Driver<Event = E>>(&mut self, driver: &Pages<D>, is_capturing: bool) {
        if !rules::may_call(Call::Query, is_capturing) {
            return;
        }
        // A later event covers what an earlier one does.
        while let Some((_, event)) = self.events.front()
            && matches!(driver.is_complete(*event), Ok(true))
        {
            self.completed(driver);
        }
    }

    /// Waits for the first event. False if there is none, or it cannot be waited for.
    pub fn wait<D: Driver<Event = E>>(
        &mut self,
        driver: &Pages<D>,
        now: u64,
        is_capturing: bool,
    ) -> bool {
        if self.events.is_empty() {
            self.close(driver, now, is_capturing);
        }
        let Some((_, event)) = self.events.front() else {
            return false;
        };
        if !rules::may_call(Call::Wait, is_capturing) || driver.wait(*event).is_err() {
            return false;
        }
        self.completed(driver);
        true
    }

    /// Waits until the work on what was left at a time is over. False if it cannot be waited for.
    pub fn finish<D: Driver<Event = E>>(
        &mut self,
        driver: &Pages<D>,
        time: u64,
        now: u64,
        is_capturing: bool,
    ) -> bool {
        self.poll(driver, is_capturing);
        while !self.is_over(time) {
            if !self.wait(driver, now, is_capturing) {
                // Under a capture no event can be waited for, but for all work.
                return self.drain(driver, now);
            }
        }
        true
    }

    /// Waits for all work. False if it cannot be waited for.
    pub fn drain<D: Driver<Event = E>>(&mut self, driver: &Pages<D>, now: u64) -> bool {
        if driver.drain().is_err() {
            return false;
        }
        self.all_over(driver, now);
        true
    }

    /// All work is over.
    pub fn all_over<D: Driver<Event = E>>(&mut self, driver: &Pages<D>, now: u64) {
        self.clear(driver);
        (self.recorded, self.over) = (now, now);
    }

    fn completed<D: Driver<Event = E>>(&mut self, driver: &Pages<D>) {
        if let Some((time, event)) = self.events.pop_front() {
            driver.retire(event);
            self.over = self.over.max(time);
        }
    }

    /// Forgets all events.
    pub fn clear<D: Driver<Event = E>>(&mut self, driver: &Pages<D>) {
        for (_, event) in self.events.drain(..) {
            driver.retire(event);
        }
        self.open_pages = 0;
    }
}
