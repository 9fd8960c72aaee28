//! What the end-to-end tests share: where the built libraries are, C programs, runs, and what a run leaves.

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
