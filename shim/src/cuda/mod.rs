//! The CUDA driver: its functions, contexts, events and streams. Knows neither hooks nor the recorder.

pub mod attached;
pub mod captures;
pub mod context;
pub mod driver;
pub mod green;
pub mod primary;
