//! A coarse picture of a run, which shows that no fall lasts. The search goes through all events
//! twice, and most runs have no lasting fall.

use super::least;
use crate::ledger::Stretch;

/// Returns true if live memory may have fallen for good. After some stretch all others are lower by
/// the least fall, while the run goes on to allocate as many bytes as were live. Falls in the last
/// one are not seen.
pub fn may_last(stretches: &[Stretch]) -> bool {
    let peak = stretches.iter().map(|one| one.highest).max().unwrap_or(0);
    let least = least(peak);
    let (mut highest, mut allocated) = (0_u64, 0_u64);
    let mut later = stretches.iter().rev().enumerate();
    later.any(|(from_end, one)| {
        allocated = allocated.saturating_add(one.allocated);
        let falls = one.highest.saturating_sub(highest) >= least;
        let goes_on = allocated >= highest.saturating_add(least);
        highest = highest.max(one.highest);
        from_end > 0 && falls && goes_on
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn run(levels: &[u64]) -> bool {
        let stretch = |level: &u64| Stretch {
            highest: level * MIB,
            allocated: 50 * MIB,
        };
        let stretches: Vec<_> = levels.iter().map(stretch).collect();
        may_last(&stretches)
    }

    #[test]
    fn falls_for_good() {
        assert!(!run(&[]));
        assert!(!run(&[100, 100, 100, 100]));
        // Memory rises again.
        assert!(!run(&[100, 20, 20, 100]));
        assert!(run(&[100, 100, 20, 20, 20]));
        assert!(run(&[100, 100, 89, 89, 89]));
        assert!(!run(&[100, 100, 91, 91, 91]));
        assert!(run(&[100, 100, 100, 3]));
        // A fall in the last stretch is not seen.
        assert!(!run(&[100]));
    }
}
