//! libgpushim.so: the part of gpushim that lives inside the CUDA process.
//!
//! Thin: catch the call, ask the pool, record, answer. What can be said without a driver is in
//! `gpushim_core`. Everything that the host calls is in [`interpose`].

#![allow(non_snake_case)]

mod accessors;
mod allocator;
mod attached;
mod budget;
mod capture;
mod context;
mod device;
mod device_memory;
mod drain;
mod driver;
mod facts;
mod foreign;
mod green;
mod housekeeper;
mod interpose;
mod mappings;
mod marks;
mod memory_info;
mod mempools;
mod paged;
mod pages;
mod peers;
mod plans;
mod primary;
mod process;
mod python;
mod recorder;
mod shortage;
mod stacks;
mod takeover;
mod thread;
mod thread_names;
mod upkeep;
