//! The walker for x86-64 Linux with glibc.
//!
//! A *rule* says how to get from a frame to its caller. It is compiled once for each return address
//! (`compile`), mostly from the unwind tables of the object that the address lies in (`cfi`), and kept
//! in a process-wide table (`cache`). A warm step is a look-up there and one or two loads from the
//! stack (`step`): no lock, no heap, no system call. No word is read that is not between the stack
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
