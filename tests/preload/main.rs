//! End to end: real processes under `LD_PRELOAD=libgpushim.so` on the stand-in driver and runtimes.
//!
//! Each test starts C programs of `tests/programs`. Unless it says otherwise, a run under the shim must give the same
//! output and exit code as a run without, write nothing to standard error, and leave the stand-in driver's race
//! detector without findings.

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
mod faults;
mod fleet;
mod give_back;
mod interposition;
mod ipc;
mod killed;
mod library;
mod limits;
mod mempools;
mod nvtx;
mod oom;
mod outside;
mod owners;
mod privileged;
mod python;
mod replay;
mod reuse;
mod run;
mod runtimes;
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
