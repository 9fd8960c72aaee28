//! The recorder: other modules report events to it, and it writes them to the trace.

pub mod events;
pub mod known_stacks;
pub mod maintenance;
pub mod outside;
pub mod owners;
pub mod pause;
pub mod phase;
pub mod python;
pub mod ranges;
pub mod recording;
pub mod shortages;
pub mod stacks;
pub mod tensor_streams;
pub mod thread_names;
pub mod timeline;
pub mod trace;
pub mod usage;
