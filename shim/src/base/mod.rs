//! What every floor uses: settings, the state of a thread, the dynamic linker, and the boundary that no panic passes.

pub mod boundary;
pub mod linker;
pub mod newcomers;
pub mod preloaded;
pub mod settings;
pub mod stderr;
pub mod thread;
