//! How much memory running processes hold, as OpenMetrics text for a monitoring system.

pub(crate) mod command;
mod openmetrics;

pub use openmetrics::metrics;
