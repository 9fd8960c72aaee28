//! The command `gpushim`: it opens recordings of GPU memory, analyses them, and writes the results.
//!
//! A [`recording`] is a trace of the shim, a PyTorch memory snapshot, a log of RMM or a list of
//! requests. Each gives the same events.
//!
//! The [`ledger`] decides the effect of an event on the blocks and the sums of memory. [`loops`]
//! finds the loops of a run. [`symbols`] names the functions of stacks. Recordings and symbols are
//! of the crate `gpushim-recording`; the ledger, the loops and [`requests`] are of
//! `gpushim-analysis`. Replays and the search for settings are of `gpushim-simulate`.
//!
//! Each feature of the command has a folder with its results, its sentences and its subcommand:
//! [`report`], [`growth`], [`peak`], [`oom`], [`replay`] and the others. No feature imports another
//! one's `command.rs`. [`command`] alone knows every subcommand.
//!
//! The crate is the command's own: its interface changes with the command. To read traces in
//! another program, use `gpushim-trace`.
//!
//! ```
//! use gpushim_command::{recording, report};
//! use gpushim_trace::{Class, Event, Kind, Writer, WriterOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("run.trace");
//! # let writer = Writer::create(&path, &WriterOptions::default())?;
//! # let block = Event { device: 0, address: 0x1000, size: 4096, ..Event::new(Kind::Alloc, Class::Device) };
//! # writer.record_alloc(&block);
//! let recording = recording::open(&path)?;
//! let summary = report::summarize(recording.as_ref());
//! for device in &summary.devices {
//!     println!("device {:?}: at most {} bytes requested", device.device, device.requested.peak);
//! }
//! assert_eq!(summary.devices.first().map(|device| device.requested.peak), Some(4096));
//! # Ok(())
//! # }
//! ```

// The rooms that features share.
mod cli;
mod cut;
mod elf;
pub mod output;

// The rooms in crates of their own.
use gpushim_analysis::loops;
pub use gpushim_analysis::{ledger, requests};
use gpushim_recording::whole;
pub use gpushim_recording::{self as recording, error, symbols};

// The features, and above them the command.
mod check;
pub mod command;
mod compare;
mod compress;
mod control;
mod demo;
mod device_memory;
mod diff;
mod doctor;
pub mod events;
pub mod export;
mod falls;
mod fleet;
mod fragmentation;
mod function_names;
mod growth;
mod html;
pub mod metrics;
mod oom;
mod peak;
mod phases;
pub mod replay;
pub mod report;
mod run;
mod shared_limit;
mod timeline;
mod top;
pub mod tune;
mod unused;
