//! What an event does to memory, and what was live when: what the features count with.
//!
//! Everything is computed by streaming over the events: memory grows with what is live, not with the length of the
//! trace. `account` books sums by layer and device, [`walk`] follows the life of each block, `segments` the memory
//! that blocks are cut from, and [`by_stack`] puts blocks together by who allocated them.

mod account;
mod held;
mod moment;
#[cfg(test)]
pub(crate) mod sample;
mod segments;
mod walk;

pub use account::{Account, Device, Level};
pub use held::{Held, by_stack};
pub use moment::Moment;
pub(crate) use segments::{Segments, Taken};
pub(crate) use walk::in_order;
pub use walk::{Block, Focus, LiveAt, Visitor, Walker, walk};
