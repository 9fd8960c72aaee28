//! What an event does to memory, and which blocks were live when: the basis of all features.
//!
//! [`Ledger::apply`] takes an event and tells what it changed: which blocks began and ended, which segments were taken and
//! given back, and by [`Change::steps`] what that does to the sums. Every figure of what is live, requested, allocated or
//! reserved comes from it; no other code of the command decides these:
//!
//! | what happens | what it means |
//! |---|---|
//! | a call failed (`result` is not 0) | nothing |
//! | an allocation at an address that is live | the block before it was freed, by an event that is lost |
//! | a free of an address where nothing is live | the block was there before the first event, with the bytes that its free says ([`Unseen`]) |
//! | an allocation whose event is lost, and which is freed later | as if it had been there before the first event: the sums of the whole run rise, the peak too |
//! | a free whose event is lost, at an address that is never used again | the block stays live to the end: the peak may be too high |
//! | a block in the table of live blocks, older than the first event | it was there before the first event, and still is |
//! | what was there before the first event, and has no stack | is one row of what was live: [`MADE_BEFORE`] |
//! | a snapshot's blocks and segments of before its history | events at its beginning that are marked so; no moment of the run is among them |
//! | the sums say that more is live at the end than the known blocks | the rest was there before the first event, and still is |
//! | a segment is reserved where one is | the one before it was given back |
//! | a segment is released that is not known | it was there before the first event |
//! | memory of a class that is not pooled | counts in its own layer; in the sums of its device only if its class is device memory; reserved if the driver handed it out itself |
//! | a mapping, memory of another process or interface | counts in no sum: it is memory that is counted elsewhere |
//! | a tensor | counts in the tensors of its device alone: what lies below it is allocated by events of its own |
//! | a framework's words on its allocator | are kept beside our sums, never mixed with them |
//! | a context goes: segments | those that name it; those that name none, if they are no more than the rest of what it had; what is missing then was there before the first event |
//! | a context goes: blocks | those in segments that name it; of those in no other context's segments all, if they are no more than the rest of what it had; else those of `cudaMalloc`, if these are no more |
//! | a context goes: what the driver handed out itself | it ends where its class ends with contexts, if blocks went with it, and no other context of the device is known to have memory |
//! | a context goes, and its blocks cannot be told | the blocks stay; the sums fall by what it had, and by its share of what was asked for ([`Change::Ambiguous`]) |
//! | a context goes without a block of a pool | what the driver handed out itself stays: it may be another context's |
//! | a pool is trimmed, reset or destroyed | nothing: its segments are released by events of their own |
//! | an event without a device | is of the only device that others name; if they name several, of one for itself ([`Ledger::other_only`]) |
//!
//! Everything is computed by streaming over the events: memory grows with what is live, not with the length of the
//! trace. `account` has the sums by device with their peaks, [`walk`] follows the life of each block of a focus,
//! `segments` the memory that blocks are cut from, and [`by_stack`] groups blocks by the stack that allocated them.
//!
//! A running process has no table of blocks to look at: its timeline (`gpushim_trace`) takes the bytes of each event from
//! the same place, [`gpushim_trace::Effect`], and subtracts the total of a context that goes, where the ledger removes its blocks.

mod account;
mod apply;
mod block;
mod change;
mod context;
mod held;
mod highest;
mod lost;
mod moment;
#[cfg(test)]
pub(crate) mod sample;
mod segments;
#[cfg(test)]
mod tests;
mod unseen;
mod walk;

pub use account::{Account, DeviceAccount, Level};
pub use apply::Ledger;
pub use block::{Block, Focus, Segment};
pub use change::{Change, Step, Sum};
pub use held::{Held, MADE_BEFORE, by_stack};
pub use highest::{Highest, Stretch};
pub use lost::lost_peak;
pub use moment::Moment;
pub(crate) use segments::{Segments, Taken};
pub use unseen::Unseen;
pub(crate) use walk::in_order;
pub use walk::{LiveAt, Visitor, Walker, walk};
