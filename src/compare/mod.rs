//! Figures of runs and their comparison, for `diff`, `check` and the baseline file.
//!
//! [`RunFigures`] and [`MemoryFigures`] hold what is compared. [`changes`] pairs the named figures of
//! two runs, and [`allowed`] decides how much a figure may be.

mod change;
mod figures;

pub use change::{Change, allowed, changes};
pub use figures::{Figure, Growth, MemoryFigures, RunFigures};
