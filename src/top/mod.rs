//! Running processes: the device memory of each, its allocation rate, and the stacks that hold most.
//!
//! [`Glance`] reads it from a trace that is being written, `table` is one line for each process, and `screen` shows
//! them until `q` is pressed.

pub(crate) mod command;
mod glance;
mod growth;
mod screen;
mod table;
mod watch;

#[cfg(test)]
pub(crate) use table::Row;
pub(crate) use watch::{is_in_use, running, traces_of};
