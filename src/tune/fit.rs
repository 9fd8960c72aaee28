//! The smallest limit with which runs would have succeeded.

use super::candidate::Candidate;
use super::cost::{Cost, Sum};
use super::search::{Job, Run};
use crate::replay::ReplayDevice;

/// The resolution of a limit: this many bytes, or a thousandth of it if that is more.
const STEP: u64 = 2 << 20;
/// How often a limit that was too small is raised by a half.
const RAISES: u32 = 8;

/// Looks for limits.
pub(super) struct Limits<'a> {
    pub runs: &'a [Run<'a>],
    pub device: ReplayDevice,
    pub replays: &'a dyn Fn(&[Job]) -> Vec<Option<Cost>>,
}

impl Limits<'_> {
    /// The smallest limit under which nothing is refused, bytes, by bisection: it is taken that what fits into some
    /// memory fits into more. `None` if there was no time to find one.
    pub fn least(&self, candidate: &Candidate, sum: Sum) -> Option<u64> {
        // A limit below the live memory is never enough.
        let mut below = super::recorded::peak(self.runs).saturating_sub(1);
        let mut enough = self.device.limit.filter(|_| sum.fits());
        let mut next = sum.peak_taken.max(below.saturating_add(1));
        for _ in 0..RAISES {
            if enough.is_some_and(|enough| enough <= next) {
                break;
            }
            if self.fits(candidate, next)? {
                enough = Some(next);
                break;
            }
            (below, next) = (next, next.saturating_add(next / 2));
        }
        let mut enough = enough?;
        while enough.saturating_sub(below) > STEP.max(enough / 1000) {
            let middle = below + enough.saturating_sub(below) / 2;
            match self.fits(candidate, middle) {
                Some(true) => enough = middle,
                Some(false) => below = middle,
                None => break,
            }
        }
        Some(enough)
    }

    /// Whether all runs go through under a limit; `None` if there was no time to find out.
    fn fits(&self, candidate: &Candidate, limit: u64) -> Option<bool> {
        let limit = Some(limit);
        let device = ReplayDevice {
            limit,
            ..self.device
        };
        let jobs = self.runs.iter().map(|run| candidate.job(&device, *run));
        let costs = (self.replays)(&jobs.collect::<Vec<_>>());
        let costs: Vec<Cost> = costs.into_iter().collect::<Option<_>>()?;
        Some(Sum::of(&costs).fits())
    }
}
