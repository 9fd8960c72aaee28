//! What the shim and the command share: the allocator, the trace file, the configuration. And the command
//! itself, a folder for each of its features.
//!
//! Nothing here needs a GPU or `LD_PRELOAD`; with `default-features = false` it is what
//! `libgpushim.so` links.

pub mod background;
pub mod config;
pub mod gate;
pub mod mempool;
pub mod per_thread;
pub mod perf_map;
pub mod placement;
pub mod pool;
pub mod regular;
pub mod trace;
#[cfg(feature = "unwind")]
pub mod unwind;

// The rooms that features share.
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "cli")]
mod cut;
#[cfg(feature = "cli")]
pub mod iterations;
#[cfg(feature = "cli")]
pub mod ledger;
#[cfg(feature = "cli")]
pub mod output;
#[cfg(feature = "cli")]
pub mod recording;
#[cfg(feature = "cli")]
pub mod requests;
#[cfg(feature = "cli")]
pub mod symbols;
#[cfg(feature = "cli")]
pub mod whole;

// The features, and above them the command.
#[cfg(feature = "cli")]
pub mod command;
#[cfg(feature = "cli")]
pub mod diff;
#[cfg(feature = "cli")]
mod doctor;
#[cfg(feature = "cli")]
pub mod drops;
#[cfg(feature = "cli")]
pub mod events;
#[cfg(feature = "cli")]
pub mod export;
#[cfg(feature = "cli")]
pub mod flamegraph;
#[cfg(feature = "cli")]
pub mod fragmentation;
#[cfg(feature = "cli")]
pub mod growth;
#[cfg(feature = "cli")]
pub mod html;
#[cfg(feature = "cli")]
pub mod leaks;
#[cfg(feature = "cli")]
pub mod metrics;
#[cfg(feature = "cli")]
pub mod oom;
#[cfg(feature = "cli")]
pub mod peak;
#[cfg(feature = "cli")]
pub mod phases;
#[cfg(feature = "cli")]
pub mod plan;
#[cfg(feature = "cli")]
pub mod replay;
#[cfg(feature = "cli")]
pub mod report;
#[cfg(feature = "cli")]
mod run;
#[cfg(feature = "cli")]
pub mod timeline;
#[cfg(feature = "cli")]
pub mod top;
#[cfg(feature = "cli")]
pub mod tune;
