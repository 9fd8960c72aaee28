//! The start of the shim, its background thread, requests of `gpushim control`, the autopsy of a
//! request that failed, and changes of the environment before `main`.

pub mod autopsy;
pub mod background;
pub mod control;
pub mod facts;
pub mod start;
pub mod takeover;
