//! Facts of a recorded run that its events decide: the live blocks and the sums of memory, the loops
//! and what their passes keep, and the requests that an allocator served.
//!
//! [`ledger`] has the rules by which events change memory. [`repeats`] finds loops and growth in
//! paths and sizes alone. [`loops`] reads them from a recording, and [`requests`] lists its
//! allocations and frees.

pub mod ledger;
pub mod loops;
pub mod repeats;
pub mod requests;
