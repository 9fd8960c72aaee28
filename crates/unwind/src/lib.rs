//! The call stack of the calling thread, fast enough to be taken at every allocation.
//!
//! x86-64 Linux with glibc has a walker of its own, `native`; elsewhere the `backtrace` crate walks,
//! `portable`. Their interface is the same.

mod again;
mod frames;
mod module;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod native;
#[cfg(any(
    test,
    not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))
))]
#[cfg_attr(
    all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"),
    allow(dead_code, reason = "here its walk is what tests compare with")
)]
mod portable;

pub use again::Again;
pub use frames::{Frames, MAX_FRAMES};
pub use module::{BuildId, Module};
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
pub use native::{code_changed, module_of, on_new_module, walk};
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")))]
pub use portable::{code_changed, module_of, on_new_module, walk};
