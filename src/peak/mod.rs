//! Who held memory when most was live, or at another moment, and what it was for.
//!
//! [`Peak`] finds the blocks by stack, [`composition`] sorts them into parameters, gradients and so on, and
//! [`PeakReport`] is the table.

pub(crate) mod command;
mod composition;
mod find;
mod text;

pub use composition::{Category, Part, composition};
pub use find::Peak;
pub use text::{PeakReport, parts_in_words};
