//! What every floor uses: the process around us, the state of a thread.

pub mod linker;
pub mod preloaded;
pub mod process;
pub mod thread;
