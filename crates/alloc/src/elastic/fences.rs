//! Tracks up to which time the work on left memory is complete.
//!
//! Memory is left when the last tensor on its piece is freed. A time is a count of how often that
//! has happened. An event that is recorded after memory was left completes after the work on it. It
//! also completes after the work on all memory left before.

use std::collections::VecDeque;

use super::pages::Pages;
use crate::driver::Driver;
use crate::rules::{self, Call};

/// Most events that wait at a time. Memory that is left later is covered by the next event
/// recorded.
const MOST_EVENTS: usize = 1024;

/// Events, in the order of their times.
pub(super) struct Fences<D: Driver> {
    events: VecDeque<(u64, D::Event)>,
    /// Time that the last event stands for.
    recorded: u64,
    /// The work on memory left at this time or before is complete.
    over: u64,
    /// Pages that were left since the last event.
    open_pages: usize,
}

impl<D: Driver> Default for Fences<D> {
    fn default() -> Self {
        Fences {
            events: VecDeque::new(),
            recorded: 0,
            over: 0,
            open_pages: 0,
        }
    }
}

impl<D: Driver> Fences<D> {
    /// True if the work on memory left at this time is known to be complete.
    pub fn is_over(&self, time: u64) -> bool {
        time <= self.over || !rules::needs_page_fence()
    }

    /// Counts pages that were left.
    pub fn left(&mut self, pages: usize) {
        self.open_pages += pages;
    }

    /// Pages that were left since the last event.
    pub fn open_pages(&self) -> usize {
        self.open_pages
    }

    /// Records an event for memory that has none, unless a stream captures.
    pub fn close(&mut self, driver: &Pages<D>, now: u64, is_capturing: bool) {
        if now <= self.recorded
            || self.events.len() >= MOST_EVENTS
            || !rules::may_call(Call::Fence, is_capturing)
        {
            return;
        }
        // A refused event is recorded by a later call.
        if let Ok(event) = driver.record() {
            self.open_pages = 0;
            self.recorded = now;
            self.events.push_back((now, event));
        }
    }

    /// Polls the events, unless a stream captures.
    pub fn poll(&mut self, driver: &Pages<D>, is_capturing: bool) {
        if !rules::may_call(Call::Query, is_capturing) {
            return;
        }
        // A later event covers the work of all earlier ones.
        while let Some((_, event)) = self.events.front()
            && matches!(driver.is_complete(*event), Ok(true))
        {
            self.completed(driver);
        }
    }

    /// Waits for the first event. False if there is none, or it cannot be waited for.
    pub fn wait(&mut self, driver: &Pages<D>, now: u64, is_capturing: bool) -> bool {
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

    /// Waits until the work on memory left at this time is complete. False if it cannot be waited
    /// for.
    pub fn finish(&mut self, driver: &Pages<D>, time: u64, now: u64, is_capturing: bool) -> bool {
        self.poll(driver, is_capturing);
        while !self.is_over(time) {
            if !self.wait(driver, now, is_capturing) {
                // During a capture no single event can be waited for, but all work can.
                return self.drain(driver, now);
            }
        }
        true
    }

    /// Waits for all work. False if it cannot be waited for.
    pub fn drain(&mut self, driver: &Pages<D>, now: u64) -> bool {
        if driver.drain().is_err() {
            return false;
        }
        self.all_over(driver, now);
        true
    }

    /// Notes that all work on memory left until now is complete.
    pub fn all_over(&mut self, driver: &Pages<D>, now: u64) {
        self.clear(driver);
        (self.recorded, self.over) = (now, now);
    }

    fn completed(&mut self, driver: &Pages<D>) {
        if let Some((time, event)) = self.events.pop_front() {
            driver.retire(event);
            self.over = self.over.max(time);
        }
    }

    /// Retires all events without waiting for them.
    pub fn clear(&mut self, driver: &Pages<D>) {
        for (_, event) in self.events.drain(..) {
            driver.retire(event);
        }
        self.open_pages = 0;
    }
}
