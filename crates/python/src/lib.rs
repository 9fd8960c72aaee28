//! The Python functions on the calling thread's stack, read from the frames of CPython 3.8 to 3.14.
//! [`Owners`] has the names by which the program reaches its objects.
//!
//! [`Interpreter::find`] finds the interpreter of the process and the layout of its version. [`Interpreter::walk`]
//! follows the frames of the calling thread and gives for each its [`Call`]: the code object, and how far it has come
//! in it. Nothing of Python runs, nothing is allocated, no lock is taken, and the thread need not hold the GIL: it reads
//! only what belongs to functions that the thread is in, and these keep it alive. [`Interpreter::describe`] gives a
//! call's name, file and line, once for each [`Interpreter::key`].
//!
//! A layout is believed only after a walk through the kernel, which knows what is mapped, found a sound stack by it.
//! Builds with another layout, as those for debugging references and those without a GIL, are declined.

mod call;
mod declined;
mod describe;
mod frames;
mod interpreter;
mod layout;
mod lines;
mod memory;
mod offsets;
mod owners;
mod remembered;
mod symbols;
mod text;

pub use call::{Call, KEY};
pub use declined::{Declined, VERSIONS};
pub use frames::Step;
pub use interpreter::{Checked, Interpreter, State};
pub use owners::{Method, Owners, Walk, Walked};
pub use remembered::RememberedFrame;
