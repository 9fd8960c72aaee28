//! Figures of the steps in a replay.

use serde::Serialize;

use super::allocator::DriverTime;
use gpushim_analysis::requests::Requests;

/// A step of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Step {
    /// Requests in it.
    pub requests: u64,
    /// Highest sum of bytes asked for and not given back.
    pub peak_requested: u64,
    /// Highest sum of bytes held from the driver.
    pub peak_reserved: u64,
    /// Calls of the driver that get memory, map it or give it back.
    pub driver_calls: u64,
    /// Time of all driver calls, ns.
    pub driver_ns: u64,
}

/// Steps of a replay up to a request.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    /// Steps that have ended, in order.
    pub ended: Vec<Step>,
    open: Step,
    /// Driver calls before the open step.
    begun: DriverTime,
    /// Number of the bounds between steps that were passed.
    passed: usize,
}

impl Steps {
    /// Makes the steps before the first request.
    pub fn new(requests: &Requests) -> Steps {
        Steps {
            ended: Vec::new(),
            open: Step::default(),
            begun: DriverTime::default(),
            // A step that begins with the first request is already open.
            passed: usize::from(requests.steps().first() == Some(&0)),
        }
    }

    /// True if more steps follow.
    pub fn go_on(&self, requests: &Requests) -> bool {
        self.passed < requests.steps().len()
    }

    /// Adds a request, with the requested and the reserved bytes after it.
    pub fn see(
        &mut self,
        requests: &Requests,
        (index, is_served): (usize, bool),
        [requested, reserved]: [u64; 2],
        time: DriverTime,
    ) {
        self.open.requests += u64::from(is_served);
        self.open.peak_requested = self.open.peak_requested.max(requested);
        self.open.peak_reserved = self.open.peak_reserved.max(reserved);
        let until = match index + 1 {
            next if next == requests.len() => usize::MAX,
            next => next,
        };
        let bounds = requests.steps();
        while bounds.get(self.passed).is_some_and(|bound| *bound <= until) {
            if self.passed > 0 {
                self.ended.push(Step {
                    driver_calls: time.calls.saturating_sub(self.begun.calls),
                    driver_ns: time.ns.saturating_sub(self.begun.ns),
                    ..self.open
                });
            }
            self.passed += 1;
            self.begun = time;
            self.open = Step {
                peak_requested: requested,
                peak_reserved: reserved,
                ..Step::default()
            };
        }
    }
}
