//! Running processes: the device memory of each, its allocation rate, and the stacks that hold
//! most.
//!
//! [`Glance`] reads these figures from a trace that is being written. `table` makes one line for
//! each process. `screen` has the lines of the live view. `terminal` paints them until `q` is
//! pressed. [`End`] says how a process ended.

pub(crate) mod command;
mod ended;
mod glance;
mod growth;
mod screen;
mod table;
mod terminal;
mod watch;

pub(crate) use ended::is_here;
pub use ended::{End, State};
#[cfg(test)]
pub(crate) use table::Row;
pub(crate) use watch::{is_in_use, running, traces_of};
