//! The start of the process, what it does in the background, and what it finds in its environment.

pub mod background;
pub mod facts;
pub mod python;
pub mod start;
pub mod takeover;
