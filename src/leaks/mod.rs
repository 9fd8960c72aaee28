//! What is still live before the last iteration, or at the end, by stack and age.
//!
//! [`Leaks`] finds it, and who leaves blocks behind in iteration after iteration; [`LeaksReport`] says it in sentences.

pub(crate) mod command;
mod find;
mod text;

pub use find::{Leaks, Left};
pub use text::LeaksReport;
