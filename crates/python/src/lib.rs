//! The Python functions on the calling thread's stack, read from the frames of CPython 3.8 to 3.14.
//! [`Owners`] has the names by which the program reaches its objects.
//!
//! [`Interpreter::find`] finds the interpreter of the process and the layout of its version.
//! [`Interpreter::walk`] follows the frames of the calling thread and gives the [`Call`] of each:
//! the code object and its current instruction. No Python code runs, nothing is allocated, no lock
//! is taken, and the thread need not hold the GIL. The walk reads only objects of functions that
//! the thread is in, which keep them alive. [`Interpreter::describe`] gives a call's name, file and
//! line, once for each [`Interpreter::key`].
//!
//! A layout is used only after a walk by the kernel, which never faults, has found a sound stack
//! with it. Builds with another layout are declined, such as builds for debugging references or
//! without a GIL.

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
