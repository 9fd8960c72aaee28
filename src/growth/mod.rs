//! Growth of memory per iteration: how much, by which stacks, and when it runs out.
//!
//! [`Growth`] is found from the live memory at the beginning of each iteration; [`GrowthReport`] is its text.

mod find;
mod text;
mod until_full;

pub use find::Growth;
pub use text::{GrowthReport, fix_of};
