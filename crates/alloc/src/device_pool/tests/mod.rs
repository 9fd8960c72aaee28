//! The pool against a simulated device that watches it.

mod departing;
mod leaving;
mod machine;
mod model;
mod mutations;
mod probe;
mod program;
mod random;
mod regressions;
mod shortage;
mod threads;
mod units;
