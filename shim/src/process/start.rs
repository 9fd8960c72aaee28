//! Start-up: connects the lower floors with each other, and does the work at the opening of the
//! trace.
//!
//! The recorder does not know the pools, and the pools do not know the background thread: this file
//! gives each of them the functions that it must call. It does so at the first call that arrives at
//! a hook, which may be before this library's own initialisers run.

use std::sync::OnceLock;

use gpushim_trace::Writer;

use crate::base::{boundary, preloaded};
use crate::memory::{ipc_answers, memory_info, miss};
use crate::process::{autopsy, background, facts};
use crate::record::{ranges, stacks, timeline, trace};

/// Function that writes the facts about the hooks.
static HOOK_FACTS: OnceLock<fn(&Writer)> = OnceLock::new();

/// Connects the floors, at the first call that arrives. False if the call must go straight to the
/// real function.
#[cold]
pub fn begin(hook_facts: fn(&Writer)) -> bool {
    let _ = HOOK_FACTS.set(hook_facts);
    trace::when_opened(trace_opened);
    miss::when_it_begins(|| {
        background::start();
        ipc_answers::start();
    });
    boundary::serve()
}

/// Does the work at the opening of the trace, on the thread that opened it.
fn trace_opened(writer: &'static Writer) {
    facts::write(writer, HOOK_FACTS.get().copied().unwrap_or(|_| ()));
    stacks::start();
    ranges::opened(writer);
    // Not in a library that was loaded by `dlopen`: it may be unloaded again.
    if preloaded::is_ours() {
        timeline::start(writer, memory_info::held_now);
        background::start();
        autopsy::prepare(writer, background::wake);
    }
}
