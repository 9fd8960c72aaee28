//! Elastic segments: the segments of an allocator above us are ranges of addresses, and there is memory only where a tensor
//! of that allocator is.
//!
//! The allocator above (PyTorch's own) asks for large segments and cuts them up itself. It announces each tensor's birth before
//! anybody can use the tensor, and its death. So it is known, page by page, how many tensors are on it. A page without one,
//! behind finished work, is *hollow*: its memory may go to another page, and memory comes back before the next tensor
//! on it is handed out. Memory comes in pieces of one page to sixteen, and a piece moves as one: the larger
//! the tensor, the larger its pieces.
//!
//! The allocator's own sum of live bytes, which each announcement carries, must agree with the announcements. At the
//! first difference no page is hollowed any more, and as many as there is memory for get it back.
//!
//! Unlike the pools, [`Elastic`] calls the driver with its lock held. The allocator above holds a lock of its own
//! over each announcement and each request of a segment, so no thread waits that would not wait natively.

mod books;
mod driver;
mod emptied;
mod held;
mod piece;
mod pool;
mod segment;
mod sources;
mod state;
#[cfg(test)]
mod tests;
mod types;

pub use driver::{Handle, PAGE, PageDriver};
pub use piece::{SIZES, fitting, size_for};
pub use pool::Elastic;
pub use types::{Born, Found, FreedSegment, Mode, Refusal, Stats, Trouble};
