//! Runs a command with gpushim preloaded, and ends as it did.

mod child;
pub(crate) mod command;
