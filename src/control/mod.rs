//! `gpushim control`: asks a running process to pause or resume its recording, or to set a mark;
//! and copies its trace.
//!
//! The process is asked through the trace that it writes. `target` finds this trace, and says why a
//! process cannot be asked.

pub(crate) mod command;
mod dump;
mod target;
