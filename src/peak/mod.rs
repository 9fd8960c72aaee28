//! The stacks that held memory at the peak, or at another moment, and its composition.
//!
//! [`Peak`] finds the blocks by stack, [`composition`] sorts them into parameters, gradients and so
//! on, and [`PeakReport`] is the table.

mod composition;
mod find;
mod lower;
mod text;

pub use composition::{Part, composition};
pub use find::Peak;
pub use lower::to_lower;
pub use text::{PeakReport, others, parts_in_words};
