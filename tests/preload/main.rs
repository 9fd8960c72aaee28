//! End to end: real processes under `LD_PRELOAD=libgpushim.so` on the stand-in driver and runtimes.
//!
//! Each test starts C programs of `tests/programs`. Unless a test says otherwise, three conditions
//! hold for a run under the shim:
//!
//! - It has the output and exit code of a run without.
//! - It writes nothing to standard error.
//! - The stand-in driver's race detector has no findings.

#[path = "../support/mod.rs"]
mod support;

mod asked;
mod autopsy;
mod basics;
mod bystanders;
mod capture;
mod contexts;
mod control;
mod descriptors;
mod elastic;
mod entry_points;
mod exports;
mod failures;
mod families;
mod faults;
mod fleet;
mod give_back;
mod interposition;
mod ipc;
mod kill_switch;
mod killed;
mod library;
mod limit_reports;
mod limits;
mod mempools;
mod nvtx;
mod one_file;
mod oom;
mod outside;
mod owners;
mod privileged;
mod python;
mod recording;
mod refused_pages;
mod replay;
mod reuse;
mod run;
mod runtimes;
mod shared_limit;
mod shortage;
mod situations;
mod spool;
mod stacks;
mod stream_ordered;
mod stress;
mod takeover;
mod top;
mod torch;
mod trace_files;
mod trouble;
mod tune;
mod turns;
