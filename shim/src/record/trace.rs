//! The trace of this process: opened by the first event.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use gpushim_trace::Writer;

use crate::base::{addresses, boundary, settings, stderr};

/// The trace of this process. `None` inside: off, or it could not be written.
static TRACE: OnceLock<Option<Writer>> = OnceLock::new();

/// True once all work at the opening of the trace is done: stacks, for one, need their modules
/// announced.
static READY: AtomicBool = AtomicBool::new(false);
/// The thread that opens it; 0 before.
static OPENER: AtomicU64 = AtomicU64::new(0);
/// Longest time that other threads wait for the opening.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two checks meanwhile.
const LOOK: Duration = Duration::from_micros(100);
/// Bytes of addresses that a trace takes beside its ring and that the program can still take then.
const BESIDE: usize = 96 << 20;

/// Most facts that can wait for the trace to be opened: a process may load libraries for ever and
/// never use memory.
const EARLY_MOST: usize = 256;

/// Facts from before the trace was opened.
static EARLY: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Function that is called when the trace is opened.
static OPENED: OnceLock<fn(&'static Writer)> = OnceLock::new();

/// Registers the function that is called when the trace is opened. The opening thread runs it
/// before its first event.
pub fn when_opened(act: fn(&'static Writer)) {
    // Registered once; a second registration is the same function.
    let _ = OPENED.set(act);
}

/// Opens the trace at the first event: a process that uses no CUDA memory leaves no file.
#[inline]
pub fn open() -> Option<&'static Writer> {
    match TRACE.get() {
        Some(writer) if READY.load(Ordering::Acquire) => writer.as_ref(),
        _ => create(),
    }
}

/// True once the trace is open: [`open`] does not wait then.
#[inline]
pub fn is_ready() -> bool {
    READY.load(Ordering::Acquire)
}

#[cold]
fn create() -> Option<&'static Writer> {
    let mut first = false;
    let writer = TRACE.get_or_init(|| {
        first = true;
        boundary::prepare();
        let (path, options) = settings::config().trace_file()?;
        if !addresses::are_free(usize::try_from(options.bytes).ok()?.checked_add(BESIDE)?) {
            stderr::say(
                "failed to create the trace: the process has few addresses left (`ulimit -v`); the program runs on without one",
            );
            return None;
        }
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
    let Some(writer) = writer.as_ref() else {
        READY.store(true, Ordering::Release);
        return None;
    };
    // SAFETY: it has no arguments and cannot fail.
    let this = unsafe { libc::pthread_self() };
    if first {
        OPENER.store(this, Ordering::Relaxed);
        if let Ok(mut early) = EARLY.lock() {
            for (key, value) in early.drain(..) {
                writer.fact(&key, &value);
            }
        }
        if let Some(opened) = OPENED.get() {
            opened(writer);
        }
        READY.store(true, Ordering::Release);
    } else if OPENER.load(Ordering::Relaxed) != this {
        let end = Instant::now() + PATIENCE;
        while !READY.load(Ordering::Acquire) {
            if Instant::now() >= end {
                // A delay of the opener delays the program only once.
                READY.store(true, Ordering::Release);
                break;
            }
            // It sleeps: a spinning thread of real-time priority would keep the processor from the
            // opener.
            std::thread::sleep(LOOK);
        }
    }
    Some(writer)
}

/// Returns the trace, if it is open. For code that must not open it: under the lock of a pool or of
/// a thread cache, and when a framework announces a tensor.
#[inline]
pub fn opened() -> Option<&'static Writer> {
    TRACE.get().and_then(Option::as_ref)
}

/// True if it is known that this process has no trace.
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
