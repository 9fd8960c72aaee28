//! Elastic segments: ranges of addresses that have memory only at live tensors.
//!
//! The allocator above (PyTorch's own) asks for large segments and cuts them up itself. It
//! announces each tensor before any work can use it, and announces when the tensor is freed. So the
//! number of tensors on each page is known. It may instead map parts of ranges that it reserved
//! itself (`ranges.rs`).
//!
//! Memory comes in pieces of one, two or four pages: the larger the tensor, the larger its pieces.
//! A piece without a tensor is *idle*. Its memory becomes *spare*, at once or as soon as a request
//! lacks memory (`idle.rs`). Another piece may take spare memory, which is then mapped at both
//! pieces. A piece has memory before the next tensor on it is handed out: its own if it is still
//! spare. So a program that repeats its steps soon makes no driver calls.
//!
//! Memory passes from one tensor to another in stream order if both tensors are of one stream and
//! no other stream used the first. The allocator above does the same with its blocks. Otherwise
//! memory passes on only when the work on it is complete.
//!
//! Each announcement carries the allocator's own sum of live bytes, which must agree with the
//! announcements. From the first difference on, no memory becomes spare, and all pieces get memory
//! of their own as far as there is some.
//!
//! Unlike the pools, [`Elastic`] calls the driver with its lock held. The allocator above holds its
//! own lock during each announcement and each request for a segment. So no thread waits here that
//! would not wait natively.

mod claims;
mod device;
mod fences;
mod held_bytes;
mod idle;
mod live_sum;
mod memory;
mod open_captures;
mod pages;
mod piece;
mod ranges;
mod request;
mod segment;
mod segments;
mod sources;
mod state;
#[cfg(test)]
mod tests;
mod types;

pub use device::Elastic;
pub use pages::{Handle, PAGE, Pages};
pub use types::{Allocation, Found, Mode, Stats, Trouble};
