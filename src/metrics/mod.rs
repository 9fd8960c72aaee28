//! Memory that running processes hold, as OpenMetrics text for a monitoring system.

pub(crate) mod command;
#[cfg(test)]
mod dashboard;
mod openmetrics;
mod server;

pub use openmetrics::metrics;
