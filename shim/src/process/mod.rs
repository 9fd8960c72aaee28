//! The start of the shim, its background thread, what another process asks of it, the command that explains a request
//! which failed, and what it changes in the environment before `main`.

pub mod autopsy;
pub mod background;
pub mod control;
pub mod facts;
pub mod start;
pub mod takeover;
