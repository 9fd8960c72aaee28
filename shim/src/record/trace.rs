//! The trace of this process: opened by the first event.

use std::sync::{Mutex, OnceLock};

use gpushim_trace::Writer;

use crate::base::{boundary, settings, stderr};

/// The trace of this process; `None` inside: off, or it could not be written.
static TRACE: OnceLock<Option<Writer>> = OnceLock::new();

/// Facts that can wait for the trace to be opened: a process may load libraries for ever and never use memory.
const EARLY_MOST: usize = 256;

/// Facts that came before the trace.
static EARLY: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// What else is done when the trace is opened.
static OPENED: OnceLock<fn(&'static Writer)> = OnceLock::new();

/// Registers what else is done when the trace is opened; the opening thread runs it before its first event.
pub fn when_opened(act: fn(&'static Writer)) {
    // Registered once; a second registration is the same function.
    let _ = OPENED.set(act);
}

/// Opens the trace at the first event: a process that uses no CUDA memory leaves no file.
#[inline]
pub fn open() -> Option<&'static Writer> {
    match TRACE.get() {
        Some(writer) => writer.as_ref(),
        None => create(),
    }
}

#[cold]
fn create() -> Option<&'static Writer> {
    let mut first = false;
    let writer = TRACE.get_or_init(|| {
        first = true;
        boundary::prepare();
        let (path, options) = settings::config().trace_file()?;
        match Writer::create(&path, &options) {
            Ok(writer) => Some(writer),
            Err(error) => {
                stderr::say(&format!(
                    "failed to {error}; the program runs on without one"
                ));
                None
            }
        }
    });
    let writer = writer.as_ref()?;
    if first {
        if let Ok(mut early) = EARLY.lock() {
            for (key, value) in early.drain(..) {
                writer.fact(&key, &value);
            }
        }
        if let Some(opened) = OPENED.get() {
            opened(writer);
        }
    }
    Some(writer)
}

/// The trace, if it is open. For places that must not open it: under the pool's lock, and where a framework announces a tensor.
#[inline]
pub fn opened() -> Option<&'static Writer> {
    TRACE.get().and_then(Option::as_ref)
}

/// Whether it is known that this process has no trace.
pub fn is_off() -> bool {
    TRACE.get().is_some_and(Option::is_none)
}

/// Adds a fact about the process, now or when the trace is opened.
pub fn fact(key: &str, value: &str) {
    if let Some(writer) = opened() {
        writer.fact(key, value);
    } else if !is_off()
        && let Ok(mut early) = EARLY.lock()
        && early.len() < EARLY_MOST
    {
        early.push((key.to_owned(), value.to_owned()));
    }
}
