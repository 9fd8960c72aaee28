//! The events of a trace in the order in which they were recorded: which are wanted, and how each
//! is written.

pub(crate) mod command;
mod filter;
mod listing;

#[cfg(test)]
pub(crate) use listing::Line;
pub use listing::Listing;
pub(crate) use listing::flag_names;
