//! The caching allocator: pure policy over a [`Device`].
//!
//! [`Pool`] has one lock and holds it over no call to the device. What to do is decided in
//! `state.rs` and `ask.rs`, which know no device; `pool.rs` carries it out. `blocks.rs` and
//! `segments.rs` are the two ways to place blocks, `fences.rs` and `capture.rs` tell when a freed
//! block may be handed out again.

mod access;
mod accounts;
mod arena;
mod ask;
mod block;
mod blocks;
mod contexts;
mod departing;
mod device;
mod fences;
mod front;
mod give_back;
mod grow;
mod leaving;
mod mutation;
mod placement;
#[allow(
    clippy::module_inception,
    reason = "the pool itself, beside what it is made of"
)]
mod pool;
mod release;
mod segments;
#[cfg(test)]
mod sim;
mod state;
#[cfg(test)]
mod tests;
mod types;
mod work;

pub use device::Device;
pub use pool::Pool;
pub use types::{Found, Gone, Mark, Settings};
