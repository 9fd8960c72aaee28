//! The walker for x86-64 Linux with glibc.
//!
//! A *rule* says how to get from a frame to its caller. It is compiled once for each return address
//! (`compile`), and kept in a process-wide table (`cache`). Mostly it comes from the unwind tables
//! of the object that the address lies in (`cfi`).
//!
//! A step by a known rule is a look-up there and one or two loads from the stack (`step`). It takes
//! no lock, allocates nothing and makes no system call. A walk reads only words between the stack
//! pointer and the top of the thread's stack (`memory`).

mod cache;
mod cfi;
mod code;
mod compile;
mod expression;
mod function;
mod known;
mod memory;
mod module;
mod object;
mod rule;
mod seen;
mod step;
#[cfg(test)]
mod tests;
mod walk;

pub use function::parts_of;
pub use known::{KnownWalks, Met};
pub use module::{module_of, on_new_module};
pub use walk::{code_changed, walk, walk_known};
