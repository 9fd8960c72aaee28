//! Runs many replays on all cores within a time limit.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::cost::Cost;
use crate::replay::{Allocator, DriverTime, OutOfMemory, Policy, ReplayDevice, run};
use gpushim_analysis::requests::{InitialState, Request, Requests};

/// A replay of one run with one allocator.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Allocator of the replay.
    pub policy: Policy,
    /// Device on which it runs.
    pub device: ReplayDevice,
    /// Requests that it serves.
    pub run: Run<'a>,
}

/// The requests of a device in a run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Requests of that device.
    pub requests: &'a Requests,
    /// End of the start of the run, ns since the start of the recording.
    pub started: u64,
}

/// Progress of a step of the search.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Name of the current step.
    pub what: &'static str,
    /// Number of replays that are complete.
    pub done: usize,
    /// Number of replays in the step.
    pub of: usize,
}

/// Runs the jobs in their order, `threads` at a time. The result of a job is `None` if it was not
/// complete at `until`.
pub fn replays(
    jobs: &[Job],
    threads: usize,
    until: Instant,
    what: &'static str,
    progress: &(dyn Fn(Progress) + Sync),
) -> Vec<Option<Cost>> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let costs = Mutex::new(vec![None; jobs.len()]);
    let work = || {
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(job) = jobs.get(at).filter(|_| Instant::now() < until) else {
                return;
            };
            let cost = replay(job, until);
            // No thread panics while it holds the lock.
            let mut costs = costs
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            if let Some(place) = costs.get_mut(at) {
                *place = cost;
            }
            drop(costs);
            let done = done.fetch_add(1, Relaxed) + 1;
            let of = jobs.len();
            progress(Progress { what, done, of });
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    costs
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn replay(job: &Job, until: Instant) -> Option<Cost> {
    let mut allocator = Timed {
        inner: job.policy.build(&job.device, job.run.requests),
        until,
        count: 0,
        is_over: false,
        started: job.run.started,
        start_ns: None,
        taken: 0,
    };
    let outcome = run(job.run.requests, &mut allocator);
    let start_ns = allocator.start_ns.unwrap_or(outcome.driver_ns);
    (!allocator.is_over).then(|| Cost::new(&outcome, start_ns, allocator.taken))
}

/// Number of requests between two checks of the clock.
const LOOK: u32 = 1 << 12;

/// An allocator that measures the start of a run. After the time limit it refuses every allocation,
/// so that the rest of the replay is fast.
struct Timed {
    inner: Box<dyn Allocator>,
    until: Instant,
    count: u32,
    is_over: bool,
    started: u64,
    /// Time of the driver calls at the start of the run, ns; `None` until the start is over.
    start_ns: Option<u64>,
    /// Most bytes that were taken of the device.
    taken: u64,
}

impl Timed {
    fn look(&mut self, request: &Request) {
        self.count = self.count.wrapping_add(1);
        if self.count.is_multiple_of(LOOK) && Instant::now() >= self.until {
            self.is_over = true;
        }
        if self.start_ns.is_none() && request.ns >= self.started {
            self.start_ns = Some(self.inner.driver_time().ns);
        }
    }
}

impl Allocator for Timed {
    fn allocate(&mut self, request: &Request) -> Result<(), OutOfMemory> {
        self.look(request);
        if self.is_over {
            return Err(OutOfMemory);
        }
        let result = self.inner.allocate(request);
        self.taken = self.taken.max(self.inner.taken());
        result
    }

    fn free(&mut self, request: &Request) {
        self.look(request);
        self.inner.free(request);
    }

    fn trim(&mut self, request: &Request) {
        self.inner.trim(request);
    }

    fn begin_with(&mut self, given: &InitialState) -> bool {
        self.inner.begin_with(given)
    }

    fn reserved(&self) -> u64 {
        self.inner.reserved()
    }

    fn largest_free(&self) -> u64 {
        // It is not needed here, and computing it is slow.
        0
    }

    fn driver_time(&self) -> DriverTime {
        self.inner.driver_time()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use gpushim_alloc as alloc;
    use gpushim_analysis::requests::made::{Shape, generate};

    #[test]
    fn time_that_is_up_ends_a_replay() {
        let requests = generate(&Shape::default());
        assert!(requests.len() > 2 * LOOK as usize);
        let job = Job {
            policy: Policy::Gpushim(alloc::Policy::Vmm),
            device: ReplayDevice::default(),
            run: Run {
                requests: &requests,
                started: 0,
            },
        };
        let now = Instant::now();
        assert_eq!(replay(&job, now), None);
        let later = now + Duration::from_secs(3600);
        let whole = replay(&job, later);
        assert!(whole.is_some_and(|cost| cost.peak_requested == requests.peak()));
        let told = Mutex::new(Vec::new());
        let progress = |progress: Progress| told.lock().unwrap().push(progress.done);
        let costs = replays(&[job, job, job], 2, later, "", &progress);
        assert_eq!(costs, [whole; 3]);
        assert_eq!(told.lock().unwrap().len(), 3);
        assert_eq!(replays(&[job], 2, now, "", &|_| {}), [None]);
    }
}
