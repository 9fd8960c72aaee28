//! Figures of one step in a replay.

use serde::Serialize;

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
