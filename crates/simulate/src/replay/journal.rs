//! Journal of a replay, from which its steps are computed. The steps may be recognised only after
//! the replay has begun.

use super::allocator::DriverTime;
use super::step::Step;
use gpushim_analysis::requests::{Op, Requests};

/// Held bytes and driver calls after a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    /// Index of the request, from 0.
    after: usize,
    reserved: u64,
    time: DriverTime,
}

/// Changes of the held memory and the driver calls over a replay.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    held: Vec<Held>,
    /// Indices of the refused allocations, in order.
    pub refused: Vec<usize>,
}

impl Journal {
    /// Notes the state after a request, if it has changed.
    #[inline]
    pub fn note(&mut self, after: usize, reserved: u64, time: DriverTime) {
        let last = self.held.last().copied().unwrap_or_default();
        if (last.reserved, last.time) != (reserved, time) {
            self.held.push(Held {
                after,
                reserved,
                time,
            });
        }
    }

    /// Computes the steps of the served requests.
    pub fn steps(self, requests: &Requests) -> Vec<Step> {
        let bounds = requests.steps();
        // A step that begins with the first request is already open.
        let mut passed = usize::from(bounds.first() == Some(&0));
        let (mut steps, mut open, mut begun) = (Vec::new(), Step::default(), DriverTime::default());
        let (mut requested, mut now) = (0_u64, Held::default());
        let mut held = self.held.iter().peekable();
        let mut refused = self.refused.iter().peekable();
        let mut missing = rustc_hash::FxHashSet::default();
        let count = requests.len();
        for (index, request) in requests.iter().enumerate() {
            if passed >= bounds.len() {
                break;
            }
            let is_served = match request.op {
                Op::Allocate if refused.next_if_eq(&&index).is_some() => {
                    missing.insert(request.block);
                    true
                }
                Op::Allocate => {
                    requested = requested.saturating_add(request.bytes);
                    true
                }
                Op::Free if !missing.is_empty() && missing.remove(&request.block) => false,
                Op::Free => {
                    requested = requested.saturating_sub(request.bytes);
                    true
                }
                Op::Done | Op::Trim => true,
            };
            if let Some(change) = held.next_if(|held| held.after == index) {
                now = *change;
            }
            open.requests += u64::from(is_served);
            open.peak_requested = open.peak_requested.max(requested);
            open.peak_reserved = open.peak_reserved.max(now.reserved);
            let until = if index + 1 == count {
                usize::MAX
            } else {
                index + 1
            };
            while bounds.get(passed).is_some_and(|bound| *bound <= until) {
                if passed > 0 {
                    steps.push(Step {
                        driver_calls: now.time.calls.saturating_sub(begun.calls),
                        driver_ns: now.time.ns.saturating_sub(begun.ns),
                        ..open
                    });
                }
                passed += 1;
                begun = now.time;
                open = Step {
                    peak_requested: requested,
                    peak_reserved: now.reserved,
                    ..Step::default()
                };
            }
        }
        steps
    }
}
