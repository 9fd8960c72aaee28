//! Sudden falls of memory: when, by how much, why, of which stacks, and whether memory rises again.
//!
//! `falls` finds each fall, `swing` the highs and lows that bound it, `gather` groups similar ones; [`Drops`] is the
//! result, and [`DropsReport`] its sentences.

mod fall;
mod falls;
mod find;
mod gather;
mod screen;
mod swing;
mod text;

pub use find::Drops;
pub use screen::may_last;
pub use text::DropsReport;
