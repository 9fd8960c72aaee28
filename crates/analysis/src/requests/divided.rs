//! Requests, divided by the steps of the run.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::thread;

use super::Requests;
use crate::ledger::Focus;
use crate::loops::{Iterations, Start};
use gpushim_recording::Recording;

/// Number of steps whose figures are kept.
pub const STEPS: usize = 4096;

impl Requests {
    /// Reads requests like [`Requests::of`], with the first [`STEPS`] of the iterations. While
    /// these are searched, `meanwhile` gets the requests without steps.
    pub fn in_iterations<T>(
        recording: &dyn Recording,
        focus: Focus,
        meanwhile: impl FnOnce(&BTreeMap<u8, Requests>) -> T,
    ) -> (BTreeMap<u8, Requests>, Option<Iterations>, T) {
        let (mut all, iterations, made) = thread::scope(|scope| {
            let iterations = scope.spawn(|| Iterations::find(recording, focus));
            let all = Requests::read(recording, focus);
            let made = meanwhile(&all);
            let iterations = iterations.join();
            let iterations = iterations.unwrap_or_else(|panic| resume_unwind(panic));
            (all, iterations, made)
        });
        let starts = iterations.as_ref().map_or(&[][..], |found| &found.starts);
        for requests in all.values_mut() {
            requests.divide(starts.get(..=STEPS).unwrap_or(starts));
        }
        (all, iterations, made)
    }

    /// Notes the first request of each step; the last start is the end of the last step.
    pub(super) fn divide(&mut self, starts: &[Start]) {
        let tickets = std::mem::take(&mut self.tickets);
        let count = self.len();
        let first = |start: &Start| match tickets.is_empty() {
            // Tickets count events from 0.
            true => usize::try_from(start.ticket).map_or(count, |at| at.min(count)),
            false => tickets.partition_point(|ticket| *ticket <= start.ticket),
        };
        self.steps = starts.iter().map(first).collect();
    }
}
