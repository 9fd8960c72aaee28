//! libgpushim.so: the part of gpushim that lives inside the CUDA process.
//!
//! Thin: catch the call, ask the pool, record, answer. What can be said without a driver is in
//! `gpushim_core`. Everything that the host calls is in [`hooks`].

#![allow(non_snake_case)]

mod base;
mod cuda;
mod hooks;
mod memory;
mod process;
mod record;
