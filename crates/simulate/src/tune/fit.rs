//! The smallest limit with which runs would have succeeded.

use super::candidate::Candidate;
use super::cost::Cost;
use super::search::{Job, Run};
use crate::replay::{Known, Policy, ReplayDevice, least_limit};

/// Builds the replay of a run on a device.
type OfRun<'a, 'b> = dyn Fn(&ReplayDevice, Run<'a>) -> Job<'a> + 'b;

/// Search for the least limit of some runs.
pub(super) struct Limits<'a> {
    pub runs: &'a [Run<'a>],
    pub device: ReplayDevice,
    pub replays: &'a dyn Fn(&[Job]) -> Vec<Option<Cost>>,
}

impl<'a> Limits<'a> {
    /// Finds the least limit of a tried candidate with the sum `sum`, bytes; `None` if there was no
    /// time.
    pub fn least(&self, candidate: &Candidate, sum: Cost) -> Option<u64> {
        self.search(&|device, run| candidate.job(device, run), sum)
    }

    /// Finds the least limit of an allocator that was not tried, bytes.
    pub fn least_of(&self, policy: Policy) -> Option<u64> {
        let job = |device: &ReplayDevice, run: Run<'a>| Job {
            policy,
            device: *device,
            run,
        };
        let sum = self.replayed(&job, &self.device)?;
        self.search(&job, sum)
    }

    fn search(&self, job: &OfRun<'a, '_>, sum: Cost) -> Option<u64> {
        let known = Known {
            live: super::recorded::peak(self.runs),
            likely: sum.peak_taken,
            enough: self.device.limit.filter(|_| sum.fits()),
        };
        least_limit(known, &mut |limit| {
            let limit = Some(limit);
            let device = ReplayDevice {
                limit,
                ..self.device
            };
            Some(self.replayed(job, &device)?.fits())
        })
    }

    /// Replays all runs on a device; `None` if there was no time.
    fn replayed(&self, job: &OfRun<'a, '_>, device: &ReplayDevice) -> Option<Cost> {
        let jobs: Vec<Job> = self.runs.iter().map(|run| job(device, *run)).collect();
        let costs: Vec<Cost> = (self.replays)(&jobs).into_iter().collect::<Option<_>>()?;
        Some(Cost::of(&costs))
    }
}
