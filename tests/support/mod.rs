//! Code that the end-to-end tests share: paths of the built libraries, C programs, runs, and their
//! results.

mod build;
mod files;
mod machine;
mod older;
mod place;
mod run;
mod traces;

pub use build::{library, program, program_with};
pub use older::older_driver;
pub use place::place;
pub use run::{Outcome, Run};
pub use traces::sum;
