//! Foundations of every floor: settings, the state of a thread, the dynamic linker, and the
//! boundary to the host. At the boundary panics stop, and after a fork every call of the child is
//! forwarded.

pub mod addresses;
pub mod apart;
pub mod boundary;
pub mod ending;
pub mod linker;
pub mod lock;
pub mod newcomers;
pub mod own_time;
pub mod preloaded;
pub mod settings;
pub mod stderr;
pub mod thread;
