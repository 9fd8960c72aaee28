//! Start-up: connects the floors below with each other, and says what is done when the trace is opened.
//!
//! The recorder knows nothing of the pools, and the pools know nothing of the background thread: this file gives each
//! of them the functions that it must call. It does so at the first call that arrives at a hook, which may be before
//! this library's own initialisers run.

use std::sync::OnceLock;

use gpushim_trace::Writer;

use crate::base::{boundary, preloaded};
use crate::memory::{growth, ipc_answers, memory_info};
use crate::process::{autopsy, background, facts};
use crate::record::{ranges, stacks, timeline, trace};

/// Writes what is known of the hooks.
static HOOK_FACTS: OnceLock<fn(&Writer)> = OnceLock::new();

/// Connects the floors, at the first call that arrives. False if the call must go straight to the real function.
#[cold]
pub fn begin(hook_facts: fn(&Writer)) -> bool {
    let _ = HOOK_FACTS.set(hook_facts);
    trace::when_opened(trace_opened);
    growth::when_it_begins(|| {
        background::start();
        ipc_answers::start();
    });
    boundary::serve()
}

/// The trace was opened, by this thread.
fn trace_opened(writer: &'static Writer) {
    facts::write(writer, HOOK_FACTS.get().copied().unwrap_or(|_| ()));
    stacks::start();
    ranges::opened(writer);
    // Not in a library that was loaded by dlopen: it may be unloaded again.
    if preloaded::is_ours() {
        timeline::start(writer, memory_info::held_now);
        background::start();
        autopsy::prepare(writer, background::wake);
    }
}
