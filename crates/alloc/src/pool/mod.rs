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
pub(crate) mod bins;
mod block;
mod blocks;
pub(crate) mod capture;
pub(crate) mod class;
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
mod segments;
#[cfg(test)]
mod sim;
pub(crate) mod slab;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod types;
mod work;

pub use device::{Address, Context, Device};
pub use pool::Pool;
pub use stats::Stats;
pub use types::{Found, FreeError, Freed, Gone, Grant, Mark, Settings, Source, Stamp};

/// Cached memory that nobody asked for in so many ticks of [`Pool::decay`] goes back.
pub const TICKS_TO_DECAY: u32 = 4;

/// Where blocks come from (`GPUSHIM_POLICY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Whole driver allocations, cached one to one.
    #[default]
    Blocks,
    /// Best fit inside large driver allocations.
    Segments,
    /// Whole driver allocations of power-of-two sizes.
    Bins,
    /// A stream-ordered pool serves: see [`crate::mempool`].
    Vmm,
    /// Forwarded to the driver, and traced.
    Off,
}

/// What makes a freed block safe to hand out again (`GPUSHIM_REUSE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reuse {
    /// Ordered on the device: later work waits for the work before the free.
    #[default]
    Order,
    /// The host waits for the work before the free, at the allocation.
    Wait,
    /// The host waits for the context at each free, as the driver does.
    Strict,
}
