//! Running processes: what each holds of device memory, at what rate it allocates, and who holds most.
//!
//! [`Glance`] reads it from a trace that is being written, `table` is one line for each process, and `screen` shows
//! them until `q` is pressed.

pub(crate) mod command;
mod glance;
mod screen;
mod table;
mod watch;

pub use glance::Glance;
pub use table::{Row, table};
