//! The call stack of the calling thread, fast enough to be taken at every allocation.
//!
//! [`walk`] fills [`Frames`] with return addresses, innermost first. On x86-64 Linux with glibc the
//! walker is `native`. It compiles the unwind tables of a call site to a rule of one word, and
//! keeps the rule in a lock-free cache. From then on it takes no lock, allocates nothing and makes
//! no system call for that call site. Elsewhere `portable` walks with the `backtrace` crate, by the
//! same interface.
//!
//! [`on_new_module`] announces each object that a walk comes through. It passes the build id and
//! addresses that a reader needs for the names of the frames. [`Again`] keeps the frames of a
//! library apart from frames of an unloaded library that had the same addresses.
//!
//! ```
//! use gpushim_unwind::{Frames, module_of, walk};
//!
//! let mut frames = Frames::new();
//! let count = walk(&mut frames);
//! assert_eq!(frames.as_slice().len(), count);
//! for address in frames.as_slice() {
//!     // A return address is after its call, which may be the last instruction of its module.
//!     let module = module_of(address - 1).map(|module| module.path);
//!     println!("{address:#x} in {module:?}");
//! }
//! ```

mod again;
mod frames;
mod history;
mod module;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod native;
mod objects;
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
pub use history::History;
pub use module::{BuildId, Module};
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
pub use native::{
    KnownWalks, Met, code_changed, module_of, on_new_module, parts_of, walk, walk_known,
};
pub use objects::each_object;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")))]
pub use portable::{
    KnownWalks, Met, code_changed, module_of, on_new_module, parts_of, walk, walk_known,
};
