//! Which of several costs nobody would have, and which one to have.

use super::cost::Sum;

/// Places of those that nothing else is at least as good as in memory and time, and better in one; of several that
/// cost the same the first. What does not fit is not among them. The least memory first.
pub fn front(sums: &[Sum]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sums.len()).collect();
    order.retain(|at| sums.get(*at).is_some_and(Sum::fits));
    order.sort_by_key(|at| (sums.get(*at).map(Sum::both), *at));
    let mut least = None;
    order.retain(|at| {
        let ns = sums.get(*at).map_or(u64::MAX, |sum| sum.driver_ns);
        let is_better = least.is_none_or(|least| ns < least);
        if is_better {
            least = Some(ns);
        }
        is_better
    });
    order
}

/// Ns that driver calls may take in runs that took so many ns; `None`: that cannot be said.
pub fn allowance(duration: u64, percent: f64) -> Option<u64> {
    (duration > 0).then(|| (duration as f64 * percent / 100.0) as u64)
}

/// The place of the one with the least memory among those whose driver calls take no longer than this; if there is
/// none, of the one whose calls take least time. `None` if nothing fits.
pub fn choose(sums: &[Sum], allowance: Option<u64>) -> Option<usize> {
    let fitting = || sums.iter().enumerate().filter(|(_, sum)| sum.fits());
    let within = |sum: &Sum| allowance.is_none_or(|allowance| sum.driver_ns <= allowance);
    let least = fitting()
        .filter(|(_, sum)| within(sum))
        .min_by_key(|(_, sum)| sum.both());
    let fastest = || fitting().min_by_key(|(_, sum)| (sum.driver_ns, sum.peak_reserved));
    least.or_else(fastest).map(|(at, _)| at)
}
