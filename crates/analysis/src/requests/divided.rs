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
    /// Reads requests like [`Requests::of`], with the first [`STEPS`] of the iterations.
    pub fn in_iterations(
        recording: &dyn Recording,
        focus: Focus,
    ) -> (BTreeMap<u8, Requests>, Option<Iterations>) {
        let (mut all, iterations) = thread::scope(|scope| {
            let iterations = scope.spawn(|| Iterations::find(recording, focus, None));
            let all = Requests::read(recording, focus);
            let iterations = iterations.join();
            (all, iterations.unwrap_or_else(|panic| resume_unwind(panic)))
        });
        let starts = iterations.as_ref().map_or(&[][..], |found| &found.starts);
        for requests in all.values_mut() {
            requests.divide(starts.get(..=STEPS).unwrap_or(starts));
        }
        (all, iterations)
    }

    /// Notes the first request of each step; the last start is the end of the last step.
    pub(super) fn divide(&mut self, starts: &[Start]) {
        let tickets = std::mem::take(&mut self.tickets);
        let first = |start: &Start| tickets.partition_point(|ticket| *ticket <= start.ticket);
        self.steps = starts.iter().map(first).collect();
    }
}
