//! Costs of replays: of one, and of several together.

use serde::Serialize;

use crate::replay::Outcome;

/// Figures of one replay, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Sum"))]
pub struct Cost {
    /// Bytes asked for and not given back at most, of the run and device where they were most.
    pub peak_requested: u64,
    /// Bytes held from the driver at most, of the run and device that held the most.
    pub peak_reserved: u64,
    /// Bytes of the device that this takes at most, of the run and device where they are most.
    pub peak_taken: u64,
    /// The sum of the peaks of requested memory by the sum of the peaks of reserved memory, of all runs.
    pub utilization: f64,
    /// Calls of the driver in all runs.
    pub driver_calls: u64,
    /// Time that they would have taken, ns.
    pub driver_ns: u64,
    /// Time without the start of each run, ns.
    pub steady_ns: u64,
    /// Requests that were not met in all runs.
    pub out_of_memory: u64,
}

impl Cost {
    /// Returns the cost of a replay. `start_ns` is the time of the driver calls at the start of the
    /// run. `taken` is the most bytes that it took of the device.
    pub(super) fn new(outcome: &Outcome, start_ns: u64, taken: u64) -> Cost {
        Cost {
            peak_requested: outcome.peak_requested,
            peak_reserved: outcome.peak_reserved,
            peak_taken: taken,
            utilization: outcome.utilization,
            driver_calls: outcome.driver_calls,
            driver_ns: outcome.driver_ns,
            steady_ns: outcome.driver_ns.saturating_sub(start_ns),
            out_of_memory: outcome.out_of_memory,
        }
    }

    /// Combines the costs of several runs.
    pub fn of(costs: &[Cost]) -> Cost {
        let all = |figure: fn(&Cost) -> u64| costs.iter().map(figure).fold(0, u64::saturating_add);
        let most = |figure: fn(&Cost) -> u64| costs.iter().map(figure).max().unwrap_or(0);
        let reserved = all(|cost| cost.peak_reserved);
        let requested = all(|cost| cost.peak_requested);
        Cost {
            peak_requested: most(|cost| cost.peak_requested),
            peak_reserved: most(|cost| cost.peak_reserved),
            peak_taken: most(|cost| cost.peak_taken),
            utilization: if reserved == 0 {
                1.0
            } else {
                requested as f64 / reserved as f64
            },
            driver_calls: all(|cost| cost.driver_calls),
            driver_ns: all(|cost| cost.driver_ns),
            steady_ns: all(|cost| cost.steady_ns),
            out_of_memory: all(|cost| cost.out_of_memory),
        }
    }

    /// True if no request was refused.
    pub fn fits(&self) -> bool {
        self.out_of_memory == 0
    }

    /// Returns memory and time, of which less is better.
    pub(super) fn both(&self) -> (u64, u64) {
        (self.peak_taken, self.driver_ns)
    }
}
