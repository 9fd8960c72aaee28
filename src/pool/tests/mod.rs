//! The pool against a simulated device that watches it.

mod mutations;
mod program;
mod random;
mod regressions;
mod threads;
mod units;
