//! The pace of walks: the longest time of each, and the time of the next one.

use std::time::{Duration, Instant};

use gpushim_trace::Occasion;

/// Inverse of the largest share of a run that walks at new highs take.
const SHARE: u32 = 100;
/// Time that walks may take in a run of any length.
const ALWAYS: Duration = Duration::from_millis(250);
/// The limit of one walk that [`ALWAYS`] allows.
const ONE: Duration = Duration::from_millis(120);
/// The length of a run at its first walk.
const FIRST_AT: Duration = Duration::from_millis(200);
/// The expected time of the first walk.
const EXPECTED: Duration = Duration::from_millis(30);
/// The limit of a walk before the end, where the share allows no more.
const AT_END: Duration = Duration::from_millis(300);
/// Limit from which on a walk also looks for blocks to which no name leads.
const THOROUGH: Duration = Duration::from_millis(400);
/// The limit of a walk after an out-of-memory.
const AFTER_SHORTAGE: Duration = Duration::from_millis(400);
/// The limit of a walk that was asked for.
const ASKED: Duration = Duration::from_secs(10);
/// Smallest step in bytes between two highs; it is at least one part in [`PART`] of the last high.
const STEP: u64 = 1 << 18;
const PART: u64 = 256;

/// Returns the bit of an occasion in a set of occasions.
pub fn bit(occasion: Occasion) -> u64 {
    1 << occasion as u8
}

/// Time that was spent on walks, and the level at the last one.
pub struct Pace {
    /// The beginning of the run: the first tick of the background thread with a trace.
    start: Option<Instant>,
    /// Live bytes at the last walk.
    high: u64,
    /// The length of the run at the last walk.
    last: Duration,
    /// The sum of all walks' times.
    spent: Duration,
    /// The expected time of the next walk.
    expected: Duration,
}

impl Pace {
    /// Makes the pace of a run that is still to begin.
    pub const fn new() -> Pace {
        Pace {
            start: None,
            high: 0,
            last: Duration::ZERO,
            spent: Duration::ZERO,
            expected: EXPECTED,
        }
    }

    /// Begins the run, at the first call.
    pub fn begin(&mut self) {
        self.start.get_or_insert_with(Instant::now);
    }

    /// Returns the length of the run so far.
    pub fn elapsed(&self) -> Duration {
        self.start.map_or(Duration::ZERO, |start| start.elapsed())
    }

    /// Returns the time that walks may still take of their share of the run.
    fn left(&self) -> Duration {
        (self.elapsed() / SHARE).saturating_sub(self.spent)
    }

    /// Returns the time that the next walk may take of [`ALWAYS`].
    fn left_always(&self) -> Duration {
        ALWAYS.saturating_sub(self.spent).min(ONE)
    }

    /// True if a walk is due at this level of live bytes.
    pub fn is_due(&self, live: u64) -> bool {
        let above = |bytes: u64| live >= self.high.saturating_add(bytes.max(STEP));
        let is_far = self.elapsed() >= self.last * 2 || above(self.high / 2);
        let left = match is_far {
            true => self.left_always().max(self.left()),
            false => self.left(),
        };
        let is_new = is_far || above(self.high / PART);
        is_new && left >= self.expected && self.elapsed() >= FIRST_AT
    }

    /// Returns the limit of a walk for these occasions, each a [`bit`].
    pub fn budget(&self, occasions: u64) -> Duration {
        let of = |occasion: Occasion, time: Duration| match occasions & bit(occasion) {
            0 => Duration::ZERO,
            _ => time,
        };
        of(Occasion::Asked, ASKED)
            .max(of(Occasion::OutOfMemory, AFTER_SHORTAGE))
            .max(of(Occasion::End, AT_END))
            .max(self.left())
            .max(self.left_always())
    }

    /// True if a walk of this limit for these occasions also looks for blocks to which no name
    /// leads.
    pub fn is_thorough(occasions: u64, budget: Duration) -> bool {
        occasions & !bit(Occasion::High) != 0 || budget >= THOROUGH
    }

    /// Counts a walk at a level of live bytes.
    pub fn walked(&mut self, live: u64, took: Duration, was_stopped: bool) {
        self.high = self.high.max(live);
        self.last = self.elapsed();
        self.spent += took;
        self.expected = if was_stopped { took * 2 } else { took };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Makes a pace after a run of this length, of which walks took `spent`.
    fn pace(elapsed: Duration, spent: Duration) -> Pace {
        Pace {
            start: Instant::now().checked_sub(elapsed),
            spent,
            ..Pace::new()
        }
    }

    #[test]
    fn walks_at_new_highs_take_their_share() {
        let mut pace = pace(100 * SECOND, SECOND / 4);
        pace.walked(256 << 20, SECOND / 4, false);
        // A 256th more is due, and the same level is not.
        assert!(pace.is_due(257 << 20) && !pace.is_due(256 << 20));
        pace.walked(260 << 20, SECOND / 2, false);
        assert!(!pace.is_due(1 << 40), "the share is used up");
    }

    #[test]
    fn short_runs_have_a_few_walks() {
        assert!(!pace(FIRST_AT / 2, Duration::ZERO).is_due(1 << 30));
        let mut pace = pace(SECOND, Duration::ZERO);
        assert!(pace.is_due(0));
        assert_eq!(pace.budget(bit(Occasion::High)), ONE);
        pace.walked(0, Duration::from_millis(100), false);
        assert!(!pace.is_due(0), "not twice as long yet");
        pace.last = SECOND / 2;
        assert!(pace.is_due(0));
        pace.walked(0, Duration::from_millis(130), false);
        pace.last = SECOND / 2;
        assert!(!pace.is_due(0), "all that each run has is used up");
    }

    #[test]
    fn what_is_expected_doubles_after_a_walk_that_was_stopped() {
        let mut pace = Pace::new();
        pace.walked(1, Duration::from_millis(40), true);
        assert_eq!(pace.expected, Duration::from_millis(80));
        pace.walked(1, Duration::from_millis(70), false);
        assert_eq!(pace.expected, Duration::from_millis(70));
    }
}
