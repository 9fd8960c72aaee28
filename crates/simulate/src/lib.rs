//! Simulation of other memory settings on a recorded run, without a GPU.
//!
//! [`replay`] serves the requests of a run with other allocators. [`tune`] searches the settings of
//! gpushim that would have served recordings best.

pub mod replay;
pub mod tune;
