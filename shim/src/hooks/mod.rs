//! Arrival of the host's calls: exported symbols, and pointers that replace the driver's.

pub mod caller;
pub mod control;
pub mod door;
pub mod driver;
pub mod entry;
pub mod exports;
pub mod loader;
pub mod nccl;
pub mod nvml;
pub mod nvtx;
pub mod runtime;
pub mod stats;
pub mod torch;
mod torch_stream;
