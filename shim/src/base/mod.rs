//! What every floor uses: the process around us, the state of a thread.

pub mod boundary;
pub mod linker;
pub mod newcomers;
pub mod preloaded;
pub mod settings;
pub mod stderr;
pub mod thread;
