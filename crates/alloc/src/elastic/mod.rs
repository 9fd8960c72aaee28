//! Elastic segments: the segments of an allocator above us are ranges of addresses, and there is memory only where a tensor
//! of that allocator is.
//!
//! The allocator above (PyTorch's own) asks for large segments and cuts them up itself. It announces each tensor before
//! anybody can use the tensor, and its death. So it is known, page by page, how many tensors are on it. Memory comes in pieces
//! of one, two or four pages: the larger the tensor, the larger its pieces. A piece without a tensor is *idle*. Its memory becomes
//! *spare*, at once or as soon as a request lacks memory (`idle.rs`). Another piece may have spare memory, and it is then mapped at
//! both. A piece has memory before the next tensor on it is handed out, its own if that is still spare. So a program that repeats
//! its steps soon calls the driver no more.
//!
//! Memory goes from one tensor to another by the order of their stream, if it is the same and no other used the first
//! tensor, as the allocator above does it with its blocks; otherwise behind finished work.
//!
//! The allocator's own sum of live bytes, which each announcement carries, must agree with the announcements. At the
//! first difference no memory becomes spare any more, and all pieces get memory of their own as far as there is some.
//!
//! Unlike the pools, [`Elastic`] calls the driver with its lock held. The allocator above holds a lock of its own
//! over each announcement and each request of a segment, so no thread waits that would not wait natively.

mod claims;
mod fences;
mod held;
mod idle;
mod live_sum;
mod memory;
mod open;
mod pages;
mod piece;
mod pool;
mod segment;
mod segments;
mod sources;
mod state;
#[cfg(test)]
mod tests;
mod types;
mod wanted;

pub use pages::{Handle, PAGE, Pages};
pub use pool::Elastic;
pub use types::{Allocation, Found, FreedSegment, Mode, Refusal, Stats, Trouble};
