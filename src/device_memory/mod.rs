//! Device memory at a moment, by owner: a table whose rows add up to the used bytes.
//!
//! [`MemorySums`] adds up blocks by class and stack in one pass over the events. It also adds up
//! code, graphs and contexts by the change of memory around them. `asker` finds the allocating
//! library from a stack, and `communicators` finds the communicator of NCCL. [`DeviceMemory`] is
//! the table, and `text` is its output. Memory of unknown purpose has a row of its own.

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
