//! Work for the trace beside its events: on the background thread, and at the end of the process.

use std::sync::Once;

use gpushim_trace::{Condition, Writer};

use crate::base::{ending, stderr};
use crate::record::trace::opened;
use crate::record::{owners, stacks, timeline};

/// Most bytes of the ring that one tick of the background thread makes present ahead of their use:
/// 260,000 events.
const AHEAD: u64 = 16 << 20;

/// Does the background thread's work for the trace at a tick. True if the next tick should come
/// soon: the ring fills, and not all of it is present.
pub fn run() -> bool {
    opened().is_some_and(|writer| {
        // First, before any other access to the file.
        say_condition(writer);
        writer.calibrate();
        stacks::maintain(writer);
        let walks = owners::consider(writer);
        let fills = timeline::poll();
        writer.keep_ahead(AHEAD) || fills || walks
    })
}

/// Reports each problem of the trace's file once.
fn say_condition(writer: &Writer) {
    static SHORT: Once = Once::new();
    static TRUNCATED: Once = Once::new();
    let path = writer.path().display();
    match writer.check() {
        Condition::Sound => {}
        Condition::Short => SHORT.call_once(|| {
            stderr::say(&format!(
                "the disk is full: the trace {path} keeps fewer events; the program runs on"
            ));
        }),
        // A full disk also has no room for pages that were only read: that was reported.
        Condition::Truncated if SHORT.is_completed() => {}
        Condition::Truncated => TRUNCATED.call_once(|| {
            stderr::say(&format!(
                "the trace {path} was truncated: nothing more is kept; the program runs on"
            ));
        }),
    }
}

/// Completes the background thread's work for the trace at the end of the process.
pub fn finish() {
    if let Some(writer) = opened() {
        say_condition(writer);
        stacks::maintain(writer);
        timeline::stop();
        // A killed process has no such fact, and differs by that from a process that ended by
        // itself.
        writer.fact("ended", &ending::in_words());
    }
}
