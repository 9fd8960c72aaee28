//! The smallest limit with which runs would have succeeded.

use super::candidate::Candidate;
use super::cost::{Cost, Sum};
use super::search::{Job, Run};
use crate::replay::{Known, Policy, ReplayDevice, least_limit};

/// Makes the replay of a run on a device.
type OfRun<'a, 'b> = dyn Fn(&ReplayDevice, Run<'a>) -> Job<'a> + 'b;

/// Looks for limits.
pub(super) struct Limits<'a> {
    pub runs: &'a [Run<'a>],
    pub device: ReplayDevice,
    pub replays: &'a dyn Fn(&[Job]) -> Vec<Option<Cost>>,
}

impl<'a> Limits<'a> {
    /// The least limit of a candidate that was tried and came to this, bytes; `None` if there was no time to find one.
    pub fn least(&self, candidate: &Candidate, sum: Sum) -> Option<u64> {
        self.search(&|device, run| candidate.job(device, run), sum)
    }

    /// The least limit of an allocator that was not tried, bytes.
    pub fn least_of(&self, policy: Policy) -> Option<u64> {
        let job = |device: &ReplayDevice, run: Run<'a>| Job {
            policy,
            device: *device,
            run,
        };
        let sum = self.replayed(&job, &self.device)?;
        self.search(&job, sum)
    }

    fn search(&self, job: &OfRun<'a, '_>, sum: Sum) -> Option<u64> {
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

    /// What all runs come to on a device; `None` if there was no time to find out.
    fn replayed(&self, job: &OfRun<'a, '_>, device: &ReplayDevice) -> Option<Sum> {
        let jobs: Vec<Job> = self.runs.iter().map(|run| job(device, *run)).collect();
        let costs: Vec<Cost> = (self.replays)(&jobs).into_iter().collect::<Option<_>>()?;
        Some(Sum::of(&costs))
    }
}
