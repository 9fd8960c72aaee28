//! The memory of a device at a moment, by owner: one table whose rows add up to the bytes that the process
//! uses.
//!
//! [`MemorySums`] adds up blocks by class and stack in one pass over the events, and code, graphs and
//! contexts by the memory that went with them. `asker` tells from a stack which library asked.
//! `communicators` tells which communicator of NCCL. [`DeviceMemory`] is the table, `text` its look.
//! Memory that cannot be told apart is a row.

mod asker;
mod communicators;
mod driver;
mod find;
mod rows;
mod spare;
mod sums;
#[cfg(test)]
mod tests;
mod text;

pub use find::DeviceMemory;
#[cfg(test)]
pub use rows::MemoryPart;
pub use spare::Spare;
pub use sums::{MemorySums, When};
pub use text::{beside, table};
