//! One self-contained HTML page of recordings: timeline, blocks over addresses, flame graph,
//! tables.
//!
//! `memory` keeps the live blocks while the events are read. `blocks`, `notes`, `phases`, `series`
//! and `stacks` keep the data that the page shows. `pack` writes it for `assets/`, the program in
//! the page. `job` writes the page of a job's ranks.

mod blocks;
mod browser;
pub(crate) mod command;
mod job;
mod keep;
mod memory;
mod notes;
mod pack;
mod page;
mod phases;
mod series;
mod stacks;

#[cfg(test)]
pub(crate) use memory::curves;
