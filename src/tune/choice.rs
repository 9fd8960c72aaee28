//! Which of several costs are dominated by others, and which one to choose.

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

/// Ns that driver calls may take in runs of `duration` ns, both without their start; `None` if the duration is 0.
pub fn allowance(duration: u64, percent: f64) -> Option<u64> {
    (duration > 0).then(|| (duration as f64 * percent / 100.0) as u64)
}

/// Memory that is at most 1/`SAME_MEMORY` more than the least counts as equal, and time likewise by `SAME_TIME`: runs
/// differ by more than that.
const SAME_MEMORY: u64 = 200;
const SAME_TIME: u64 = 20;

/// The place of one on the front: the least memory, then the least time, then the first, among those whose driver
/// calls take no longer than this after the start; if there is none, the one whose calls take least time then. `None`
/// if nothing fits.
pub fn choose(sums: &[Sum], allowance: Option<u64>) -> Option<usize> {
    let front = front(sums);
    let steady = |at: &usize| sums.get(*at).map_or(u64::MAX, |sum| sum.steady_ns);
    let figures = |at: &usize| sums.get(*at).map_or((u64::MAX, u64::MAX), Sum::both);
    let is_within = |at: &usize| allowance.is_none_or(|most| steady(at) <= most);
    let within = || front.iter().copied().filter(is_within);
    let Some(least) = within().map(|at| figures(&at).0).min() else {
        return front.iter().copied().min_by_key(steady);
    };
    let small = || within().filter(|at| figures(at).0 <= least.saturating_add(least / SAME_MEMORY));
    let fastest = small().map(|at| figures(&at).1).min()?;
    small()
        .filter(|at| figures(at).1 <= fastest.saturating_add(fastest / SAME_TIME))
        .min()
}
