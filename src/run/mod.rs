//! Runs a command with gpushim preloaded, tells what its traces say, and ends as it did.

pub(crate) mod child;
pub(crate) mod command;
mod summaries;
mod summary;
mod traces;
pub(crate) mod words;

pub(crate) use traces::on_disk;
