//! Rules by which events change memory, and the blocks that are live at each moment: the basis of
//! all features.
//!
//! [`Ledger::apply`] takes an event and returns its changes: blocks and segments that begin and
//! end. [`Change::steps`] turns them into changes of the sums. Every figure of live, requested,
//! allocated or reserved memory comes from it; no other code of the command decides these:
//!
//! | event or state | meaning |
//! |---|---|
//! | a call failed (`result` is not 0) | nothing |
//! | an allocation at a live address | the block before it was freed, by an event that is lost |
//! | a free of an address where nothing is live | the block was there before the first event, with the bytes of its free ([`Unseen`]) |
//! | an allocation whose event is lost, and which is freed later | the block counts as there before the first event: the sums of the whole run rise, the peak too |
//! | a free whose event is lost, at an address that is never used again | the block stays live to the end: the peak may be too high |
//! | a block in the table of live blocks, older than the first event | it was there before the first event, and still is |
//! | memory from before the first event, without a stack | it is one row of live memory: [`MADE_BEFORE`] |
//! | a snapshot's blocks and segments from before its history | they are marked events at its beginning; no moment of the run is among them |
//! | the sums at the end exceed the known live blocks | the rest was there before the first event, and still is |
//! | a segment is reserved at the address of another one | the other one was released |
//! | an unknown segment is released | it was there before the first event |
//! | memory of a class that is not pooled | it counts in its own layer; in the sums of its device only if its class is device memory; as reserved if the driver served it itself |
//! | a mapping, memory of another process or interface | it counts in no sum: the memory is counted elsewhere |
//! | a tensor | it counts in the tensors of its device alone: the memory below it is allocated by events of its own |
//! | a framework's figures of its allocator | they are kept beside the ledger's sums, never mixed with them |
//! | a context is destroyed: segments | the ones that name it end; so do the ones that name none, if they are no more than the rest of its bytes; missing bytes were there before the first event |
//! | a context is destroyed: blocks | the ones in segments that name it end; of the ones in no other context's segments all, if they are no more than the rest of its bytes; else the ones of `cudaMalloc`, if these are no more |
//! | a context is destroyed: memory that the driver served itself | it ends if its class ends with contexts, blocks ended with it, and no other context of the device is known to have memory |
//! | a context is destroyed, and its blocks cannot be identified | the blocks stay; the sums fall by its bytes, and by their share of the requested bytes ([`Change::Ambiguous`]) |
//! | a context is destroyed without a block of a pool | memory that the driver served itself stays: it may be another context's |
//! | a pool is trimmed, reset or destroyed | nothing: its segments are released by events of their own |
//! | an event without a device | it belongs to the only device that others name; if they name several, to a device of its own ([`Ledger::other_only`]) |
//!
//! Everything is computed by streaming over the events: memory grows with the live blocks, not with
//! the length of the trace. `account` has the sums by device with their peaks. [`walk`] follows the
//! life of each block of a focus. `segments` has the memory that blocks are cut from. [`by_stack`]
//! groups blocks by the stack that allocated them.
//!
//! A running process has no table of blocks. Its timeline (`gpushim_trace`) takes the bytes of each
//! event from the same place, [`gpushim_trace::Effect`]. It subtracts the total of a destroyed
//! context, while the ledger removes its blocks.

mod account;
mod apply;
mod block;
mod change;
mod context;
mod held;
mod highest;
mod lost;
mod moment;
#[cfg(any(test, feature = "samples"))]
#[doc(hidden)]
pub mod sample;
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
pub use segments::{Segments, Taken};
pub use unseen::Unseen;
pub(crate) use walk::in_order;
pub use walk::{LiveAt, Visitor, Walker, walk};
