//! What the shim and the command share: the allocator, the trace file, the configuration.
//!
//! Nothing here needs a GPU or `LD_PRELOAD`; with `default-features = false` it is what
//! `libgpushim.so` links.

#[cfg(feature = "cli")]
pub mod analysis;
pub mod background;
pub mod config;
#[cfg(feature = "cli")]
pub mod export;
pub mod gate;
pub mod mempool;
pub mod per_thread;
pub mod perf_map;
pub mod placement;
pub mod pool;
#[cfg(feature = "cli")]
pub mod recording;
pub mod regular;
#[cfg(feature = "cli")]
pub mod replay;
#[cfg(feature = "cli")]
pub mod report;
#[cfg(feature = "cli")]
pub mod symbols;
pub mod trace;
#[cfg(feature = "cli")]
pub mod tune;
#[cfg(feature = "unwind")]
pub mod unwind;
#[cfg(feature = "cli")]
pub mod whole;
