//! What another allocator would have done with a run that was recorded.
//!
//! [`Requests`](crate::requests::Requests) are the allocations and frees of a recording, in order. An [`Allocator`]
//! serves them without a GPU: our own policies ([`Ours`]) by the code that the shim runs, over a [`Simulated`]
//! device; other allocators (`bfc`, `rmm`, `torch`) by what is documented of them. [`run`] drives one with the other
//! and says what it held and what it asked of the driver; `text` is the table, `plot` draws it.

mod allocator;
mod bfc;
mod bytes;
mod caching;
pub(crate) mod command;
mod device;
mod gpushim;
mod heap;
mod outcome;
mod plot;
mod policy;
mod rmm;
mod run;
mod steps;
#[cfg(test)]
mod tests;
mod text;
mod torch;

pub use allocator::{Allocator, DriverTime, OutOfMemory};
pub use device::{Device, Simulated};
pub use gpushim::Ours;
pub use outcome::{Curve, Outcome, Point, Step};
pub use policy::{Policy, decay};
pub use run::run;
pub use text::ReplayReport;
