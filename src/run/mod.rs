//! Runs a command with gpushim preloaded, tells what its traces say, and ends as it did.

mod afterwards;
pub(crate) mod child;
pub(crate) mod command;
mod killer;
mod summaries;
mod summary;
mod traces;
pub(crate) mod words;

pub(crate) use traces::on_disk;
