//! Runs a command with gpushim preloaded, prints the findings of its traces, and ends as it did.

mod afterwards;
pub(crate) mod child;
pub(crate) mod command;
mod killer;
mod preloadable;
mod summary;
mod traces;
pub(crate) mod words;

pub(crate) use traces::on_disk;
