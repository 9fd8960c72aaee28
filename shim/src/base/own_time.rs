//! Time that this library spends in calls of one kind, measured by itself.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use gpushim_trace::{Calibration, ClockSource, Pair};

use crate::base::thread;

/// Clock of this machine, and its state at the first call.
fn clock() -> &'static (ClockSource, Pair) {
    static CLOCK: OnceLock<(ClockSource, Pair)> = OnceLock::new();
    CLOCK.get_or_init(|| {
        let clock = ClockSource::detect();
        (clock, clock.pair())
    })
}

/// Announcements of PyTorch's tensors, with the driver's calls in them.
pub static ANNOUNCEMENTS: OwnTime = OwnTime::new();

/// Number of counts. All threads without counts of their own share the first.
const COUNTS: usize = 64;

/// Number and time of calls.
pub struct OwnTime {
    /// Counts by the thread's serial number, which is not 0.
    counts: [Counts; COUNTS],
}

/// Number and time of the calls of a thread. A locked instruction would wait for all of the call's
/// stores, so threads do not share them.
#[repr(align(64))]
struct Counts {
    calls: AtomicU64,
    ticks: AtomicU64,
}

impl OwnTime {
    /// Creates it without calls.
    pub const fn new() -> Self {
        OwnTime {
            counts: [const {
                Counts {
                    calls: AtomicU64::new(0),
                    ticks: AtomicU64::new(0),
                }
            }; COUNTS],
        }
    }

    /// Measures a call, which gets the ticks of its begin, later than all that the thread has seen.
    #[inline]
    pub fn measure<R>(&self, call: impl FnOnce(u64) -> R) -> R {
        let (clock, _) = clock();
        let begun = clock.now_after();
        let result = call(begun);
        self.add(clock.now().saturating_sub(begun));
        result
    }

    #[inline]
    fn add(&self, ticks: u64) {
        let relaxed = Ordering::Relaxed;
        if let Some(own) = self.counts.get(thread::serial() as usize) {
            own.calls.store(own.calls.load(relaxed) + 1, relaxed);
            own.ticks.store(own.ticks.load(relaxed) + ticks, relaxed);
        } else if let Some(shared) = self.counts.first() {
            shared.calls.fetch_add(1, relaxed);
            shared.ticks.fetch_add(ticks, relaxed);
        }
    }

    /// Describes the calls: their number, the mean time of each, and their share of the time since
    /// the first one. `None` without calls.
    pub fn describe(&self) -> Option<String> {
        let sum = |of: fn(&Counts) -> &AtomicU64| {
            let counts = self.counts.iter().map(of);
            counts
                .map(|count| count.load(Ordering::Relaxed))
                .sum::<u64>()
        };
        let calls = sum(|counts| &counts.calls);
        let ticks = sum(|counts| &counts.ticks);
        let (clock, start) = *clock();
        let later = clock.pair();
        let calibration = Calibration { start, later };
        let since = (later.ns - start.ns) as f64;
        let ns = calibration.ns(start.ticks + ticks) as f64;
        (calls > 0 && since > 0.0).then(|| {
            let (each, share) = (ns / calls as f64, ns / since * 100.0);
            format!("{calls}, {each:.0} ns each, {share:.2} % of the time since the first")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_time_of_calls_is_counted() {
        let time = OwnTime::new();
        assert_eq!(time.describe(), None);
        let wait = |_| {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(5) {}
        };
        time.measure(wait);
        // More threads than have counts of their own.
        std::thread::scope(|scope| {
            for _ in 0..COUNTS + 1 {
                scope.spawn(|| time.measure(wait));
            }
        });
        let told = time.describe().expect("there were calls");
        let each = told
            .strip_prefix(&format!("{}, ", COUNTS + 2))
            .and_then(|rest| rest.split(' ').next());
        let each: u64 = each.and_then(|ns| ns.parse().ok()).expect("a number");
        assert!(each >= 4_900_000, "{told}");
    }
}
