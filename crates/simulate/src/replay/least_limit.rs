//! Finds the least limit at which requests still fit.

use super::allocator::Allocator;
use gpushim_analysis::requests::{Op, Requests};

/// Resolution of a limit: this many bytes, or a thousandth of the limit if that is more.
const STEP: u64 = 2 << 20;
/// Most increases of a limit that was too small, by a half each.
const RAISES: u32 = 8;
/// Most replays of one search.
pub const LEAST_LIMIT_REPLAYS: usize = 20;

/// Facts that are known before a search.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Peak of the live bytes; a lower limit is never enough.
    pub live: u64,
    /// Bytes that are likely to be enough: the amount that is taken without a limit.
    pub likely: u64,
    /// Bytes that are known to be enough.
    pub enough: Option<u64>,
}

/// Searches by bisection for the least limit under which nothing is refused, bytes. It assumes that
/// a larger limit never refuses more.
///
/// `fits` returns whether a limit is enough, or `None` if there is no time. Then the result is the
/// least sufficient limit so far, or `None`. At most [`LEAST_LIMIT_REPLAYS`] limits are tried.
pub fn least_limit(known: Known, fits: &mut dyn FnMut(u64) -> Option<bool>) -> Option<u64> {
    let mut below = known.live.saturating_sub(1);
    let mut enough = known.enough;
    let mut next = known.likely.max(known.live);
    let mut left = LEAST_LIMIT_REPLAYS;
    for _ in 0..RAISES {
        if enough.is_some_and(|enough| enough <= next) {
            break;
        }
        left -= 1;
        if fits(next)? {
            enough = Some(next);
            break;
        }
        (below, next) = (next, next.saturating_add(next / 2));
    }
    let mut enough = enough?;
    while left > 0 && enough.saturating_sub(below) > STEP.max(enough / 1000) {
        left -= 1;
        let middle = below + (enough - below) / 2;
        match fits(middle) {
            Some(true) => enough = middle,
            Some(false) => below = middle,
            None => break,
        }
    }
    Some(enough)
}

/// True if an allocator serves all requests. The replay ends at the first refused one.
pub fn fits(requests: &Requests, allocator: &mut dyn Allocator) -> bool {
    let skip = if allocator.begin_with(requests.given()) {
        requests.given().blocks.len()
    } else {
        0
    };
    let mut rest = requests.iter().enumerate();
    rest.all(|(index, request)| {
        let is_restored = request.op == Op::Allocate && index < skip;
        is_restored || allocator.serve(&request).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn known(likely: u64) -> Known {
        Known {
            live: 1000 * MIB,
            likely: likely * MIB,
            enough: None,
        }
    }

    #[test]
    fn the_least_limit_is_enough_and_found_within_the_resolution() {
        for needed in [1000, 1001, 1234, 1999, 2500, 20_000] {
            let mut tried = 0;
            let mut fits = |limit: u64| {
                tried += 1;
                Some(limit >= needed * MIB)
            };
            let least = least_limit(known(1200), &mut fits).expect("one");
            assert!(least >= needed * MIB);
            assert!(least <= needed * MIB + STEP.max(least / 1000), "{needed}");
            assert!(tried <= LEAST_LIMIT_REPLAYS, "{tried}");
        }
    }

    #[test]
    fn without_time_or_with_nothing_enough_there_is_none() {
        assert_eq!(least_limit(known(1200), &mut |_| None), None);
        assert_eq!(least_limit(known(1200), &mut |_| Some(false)), None);
        let mut left = 2;
        let mut fits = |limit: u64| {
            left -= 1;
            (left >= 0).then_some(limit >= 1050 * MIB)
        };
        // 1,200 MiB, then the middle between this and the live bytes.
        let found = least_limit(known(1200), &mut fits).map(|limit| limit.div_ceil(MIB));
        assert_eq!(found, Some(1100));
    }
}
