//! The recorder: is told facts, and writes them to the trace.

pub mod events;
pub mod marks;
pub mod stacks;
pub mod thread_names;
pub mod timeline;
