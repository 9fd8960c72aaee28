//! Growth of memory per iteration: its rate, the stacks that keep it, and the time until memory is
//! full.
//!
//! [`Growth`] is found from the live memory at the beginning of each iteration; [`GrowthReport`] is
//! its text. `fix` has the changes for known patterns of blocks.

mod blocks;
mod find;
mod fix;
mod text;
mod until_full;

pub use find::Growth;
pub use text::GrowthReport;
