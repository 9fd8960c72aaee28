//! What is still live before the last iteration, or at the end, by stack and age.
//!
//! [`Leaks`] finds the blocks, and the stacks that leave blocks behind in most iterations; [`LeaksReport`] is its text.

mod blocks;
mod cure;
mod find;
mod text;

pub use blocks::Blocks;
pub use cure::cure;
pub use find::Leaks;
pub use text::LeaksReport;
