//! The start of the shim, its background thread, and what it changes in the environment before `main`.

pub mod background;
pub mod facts;
pub mod start;
pub mod takeover;
