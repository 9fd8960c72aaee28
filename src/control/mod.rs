//! `gpushim control`: asks a running process to pause its recording, to go on, or to set a mark; and copies its trace.
//!
//! The process is asked through the trace that it writes; `target` finds that, and says why it cannot be asked.

pub(crate) mod command;
mod dump;
mod target;
