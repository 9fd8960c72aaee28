//! The loops of a recorded run, and the memory that their passes keep, from paths and sizes alone.
//!
//! | file | idea |
//! |---|---|
//! | `contexts` | the tree of calling contexts |
//! | `walk` | the walk of each thread over them, and its loops |
//! | `passes` | where the passes of a loop begin, in bounded space |
//! | `series` | the level of live memory at the beginning of each pass |
//! | `trend` | the course of one group's levels: flat, even, sparse, or back again |
//! | `growth` | growth of a loop, and the loop to which the growth of a run belongs |

mod contexts;
mod growth;
mod passes;
mod series;
#[cfg(test)]
mod tests;
mod trend;
mod walk;

pub use growth::{FEW, Grown, Growth, Kind, Level, choose};
pub use passes::Moment;
pub use series::{Levels, Live, Series};
pub use trend::{Course, course};
pub use walk::{Loop, PathKind, Walk};
