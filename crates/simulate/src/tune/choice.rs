//! Finds the costs that no other cost dominates, and chooses one of them.

use super::cost::Cost;

/// Indices of the sums on the Pareto front between memory and time, the least memory first. Of
/// equal sums only the first is included. Sums that do not fit are left out.
pub fn front(sums: &[Cost]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sums.len()).collect();
    order.retain(|at| sums.get(*at).is_some_and(Cost::fits));
    order.sort_by_key(|at| (sums.get(*at).map(Cost::both), *at));
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

/// Most ns that driver calls may take in runs of `duration` ns, both without the start. `None` if
/// the duration is 0.
pub fn allowance(duration: u64, percent: f64) -> Option<u64> {
    (duration > 0).then(|| (duration as f64 * percent / 100.0) as u64)
}

/// Divisor of the least memory: up to `1/SAME_MEMORY` more counts as equal, since runs differ by
/// more. `SAME_TIME` is the same for time.
const SAME_MEMORY: u64 = 200;
const SAME_TIME: u64 = 20;

/// Chooses a sum on the front and returns its index; `None` if nothing fits. Candidates are the
/// sums whose driver calls after the start take at most `allowance`. The order of preference is the
/// least memory, the least time, and the lowest index. Without a candidate the sum with the least
/// time after the start is chosen.
pub fn choose(sums: &[Cost], allowance: Option<u64>) -> Option<usize> {
    let front = front(sums);
    let steady = |at: &usize| sums.get(*at).map_or(u64::MAX, |sum| sum.steady_ns);
    let figures = |at: &usize| sums.get(*at).map_or((u64::MAX, u64::MAX), Cost::both);
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
