//! How much reserved memory is free but in pieces, and what keeps the pieces.
//!
//! [`Fragmentation`] is found at one moment from the layout of its segments; [`FragmentationReport`] says it in
//! sentences, and `map` draws the segments.

pub(crate) mod command;
mod find;
mod layout;
mod map;
mod text;

pub use find::{Asked, Fragmentation, Pin};
pub use layout::{Room, Segment};
pub use text::FragmentationReport;
