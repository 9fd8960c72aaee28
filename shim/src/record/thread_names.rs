//! Threads' names, recorded by the background thread. A thread leaves its id when it records for
//! the first time. The background thread then reads the kernel's name for it.

use std::sync::Mutex;

use gpushim_trace::Facts;

use crate::base::{newcomers, settings};
use crate::record::events;

/// Most names that can wait for the trace to be opened.
const EARLY: usize = 1024;

/// Names that the program gave before there was a trace.
static GIVEN: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());

/// Records a name that the program gave a thread, now or when there is a trace.
pub fn given(thread: u32, name: &str) {
    if events::thread_name(thread, name) {
        return;
    }
    if let Ok(mut given) = GIVEN.lock()
        && given.len() < EARLY
    {
        given.push((thread, name.to_owned()));
    }
}

/// Returns the kernel's name of a thread; `None` once it has ended.
fn kernel_name(thread: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).ok()?;
    Some(name.trim_end_matches('\n').to_owned())
}

/// Records the names of the threads that wait, unless they have ended. A thread without its own
/// name has the program's, which is not recorded if the process is to remain unknown.
pub fn record() {
    let is_told = settings::config().trace_facts != Facts::None;
    for thread in newcomers::take() {
        if let Some(name) = kernel_name(thread)
            && (is_told || kernel_name(std::process::id()).as_ref() != Some(&name))
        {
            events::thread_name(thread, &name);
        }
    }
    // Last, so that a name that the program gave is the newest.
    let given = GIVEN.lock().map(|mut given| std::mem::take(&mut *given));
    for (thread, name) in given.unwrap_or_default() {
        events::thread_name(thread, &name);
    }
}
