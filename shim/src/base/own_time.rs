//! Time that this library spends in calls of one kind, measured by itself.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use gpushim_trace::{Calibration, ClockSource, Pair};

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

/// Count and time of calls.
pub struct OwnTime {
    calls: AtomicU64,
    ticks: AtomicU64,
}

impl OwnTime {
    /// Creates it without calls.
    pub const fn new() -> Self {
        OwnTime {
            calls: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
        }
    }

    /// Measures a call. It costs about 20 ns itself.
    #[inline]
    pub fn measure<R>(&self, call: impl FnOnce() -> R) -> R {
        let (clock, _) = clock();
        let begun = clock.now();
        let result = call();
        let ticks = clock.now().saturating_sub(begun);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.ticks.fetch_add(ticks, Ordering::Relaxed);
        result
    }

    /// Describes the calls: their number, the mean time of each, and their share of the time since
    /// the first one. `None` without calls.
    pub fn describe(&self) -> Option<String> {
        let calls = self.calls.load(Ordering::Relaxed);
        let (clock, start) = *clock();
        let later = clock.pair();
        let calibration = Calibration { start, later };
        let since = (later.ns - start.ns) as f64;
        let ns = calibration.ns(start.ticks + self.ticks.load(Ordering::Relaxed)) as f64;
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
        let wait = || {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(5) {}
        };
        (0..4).for_each(|_| time.measure(wait));
        let told = time.describe().expect("there were calls");
        let each = told
            .strip_prefix("4, ")
            .and_then(|rest| rest.split(' ').next());
        let each: u64 = each.and_then(|ns| ns.parse().ok()).expect("a number");
        assert!(each >= 4_900_000, "{told}");
    }
}
