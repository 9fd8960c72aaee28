//! Reserved memory that is free but in pieces, and the blocks around the pieces.
//!
//! [`Fragmentation`] is found at one moment from the layout of its segments.
//! [`FragmentationReport`] says it in sentences, and `map` draws the segments.

mod find;
mod layout;
mod map;
mod older;
mod text;

pub use find::Fragmentation;
pub use layout::Room;
pub use text::FragmentationReport;
