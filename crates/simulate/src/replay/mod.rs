//! Replays the requests of a recorded run with other allocators.
//!
//! [`Requests`](gpushim_analysis::requests::Requests) are the allocations and frees of a recording,
//! in order. An [`Allocator`] serves them without a GPU:
//!
//! * gpushim's policies ([`GpushimAllocator`]) are the code of the shim over a [`Simulated`]
//!   device.
//! * Other allocators (`bfc`, `rmm`, `torch`) are models from their documentation.
//!
//! [`run`] serves requests with an allocator and returns the reserved memory and the driver calls.

mod allocator;
mod bfc;
mod bytes;
mod caching;
mod device;
mod first_fit;
mod gpushim;
mod heap;
mod least_limit;
mod outcome;
#[cfg(any(test, feature = "samples"))]
#[doc(hidden)]
pub mod planted;
mod policy;
mod rmm;
mod run;
mod step;
#[cfg(test)]
mod tests;
mod torch;

pub use allocator::{Allocator, DriverTime, OutOfMemory};
pub use device::{ReplayDevice, Simulated};
pub use gpushim::GpushimAllocator;
pub use least_limit::{Known, LEAST_LIMIT_REPLAYS, fits, least_limit};
pub use outcome::{Curve, Outcome, Point};
pub use policy::{Policy, decay};
pub use run::{run, run_watched, torch_options};
pub use step::Step;
