//! Time that a process spends in the library that records it.

use crate::clock::Calibration;

/// Calls into the library, some of which were timed. The driver's own time is not part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnTime {
    /// Calls up to the last timed one of each thread.
    pub calls: u64,
    /// Number of those that were timed.
    pub timed: u64,
    /// Ticks of the timed calls together, each with a reading of the clock.
    pub ticks: u64,
}

impl OwnTime {
    /// Returns the time of all calls in ns, as the timed ones suggest; 0 if none was timed.
    ///
    /// ```
    /// use gpushim_trace::{Calibration, OwnTime, Pair};
    ///
    /// // A clock of 2 GHz.
    /// let clock = Calibration {
    ///     start: Pair { ticks: 0, ns: 0 },
    ///     later: Pair { ticks: 2_000, ns: 1_000 },
    /// };
    /// let own = OwnTime { calls: 1_600, timed: 100, ticks: 40_000 };
    /// assert_eq!(own.ns(&clock), 320_000);
    /// ```
    pub fn ns(&self, clock: &Calibration) -> u64 {
        let ticks = clock.start.ticks.saturating_add(self.ticks);
        let timed = u128::from(clock.ns(ticks));
        let all = timed * u128::from(self.calls) / u128::from(self.timed.max(1));
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// Adds other calls. No value of a damaged file causes a panic.
    pub(crate) fn add(&mut self, other: OwnTime) {
        self.calls = self.calls.wrapping_add(other.calls);
        self.timed = self.timed.wrapping_add(other.timed);
        self.ticks = self.ticks.wrapping_add(other.ticks);
    }
}
