//! The CUDA driver: its functions, contexts, events, streams and captures. This module calls no
//! hook and no recorder.

pub mod attached;
pub mod captures;
pub mod context;
pub mod device;
pub mod devices;
pub mod functions;
pub mod green;
pub mod nvml;
pub mod primary;
pub mod streams;
pub mod types;
