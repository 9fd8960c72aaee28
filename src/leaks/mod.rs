//! What is still live before the last iteration, or at the end, by stack and age.
//!
//! [`Leaks`] finds the blocks, and the stacks that leave blocks behind in most iterations; [`LeaksReport`] is its text.

mod blocks;
mod find;
mod fix;
mod text;

pub use blocks::Blocks;
#[cfg(test)]
pub use find::Leaks;
pub use fix::fix;
pub use text::LeaksReport;
