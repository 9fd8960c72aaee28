//! The current context of the calling thread, remembered so that a hit need not ask the driver.
//!
//! Everything that changes it passes through hooks (`hooks/driver/context.rs`), which call
//! [`changed`] for their own thread, or [`gone`] where a context ends and any thread may be affected.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpushim_alloc::Context;
use gpushim_trace::Event;

use crate::base::thread;
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, SUCCESS, check};

/// What threads remember is valid while this stands.
static EPOCH: AtomicU64 = AtomicU64::new(1);

/// Set once something in the process may change contexts behind our back.
static DISTRUST: AtomicBool = AtomicBool::new(false);

/// Contexts that have ended, the newest last: one may stay current in a thread, where the driver then
/// refuses everything.
static ENDED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
/// Whether there are any.
static ANY_ENDED: AtomicBool = AtomicBool::new(false);
/// Contexts to remember, at most: a stale one is of interest while threads still use it.
const REMEMBERED: usize = 1024;

/// The context that is current in this thread, if any.
#[inline]
pub fn current() -> Option<Context> {
    let known = thread::with(|t| {
        (t.epoch.get() == EPOCH.load(Ordering::Acquire)).then_some(t.context.get())
    });
    match known {
        Some(context) => Some(Context(context)),
        None => ask(),
    }
}

#[cold]
fn ask() -> Option<Context> {
    let epoch = EPOCH.load(Ordering::Acquire);
    let mut handle = std::ptr::null_mut();
    // SAFETY: `handle` is ours to write.
    let mut ask = || unsafe { real::cuCtxGetCurrent(&mut handle) };
    // Asked again if it fails: the error may be that of earlier work. A free would be ordered after the wrong context's
    // work.
    if ask() != SUCCESS && ask() != SUCCESS || handle.is_null() {
        return None;
    }
    if has_ended(handle as u64) {
        return None;
    }
    let device = device();
    thread::with(|t| {
        t.context.set(handle as u64);
        t.device.set(device);
        t.epoch.set(if DISTRUST.load(Ordering::Relaxed) {
            0
        } else {
            epoch
        });
    });
    Some(Context(handle as u64))
}

/// The ordinal of the device of the current context; [`Event::NO_DEVICE`] if there is none.
pub fn device() -> u8 {
    let mut device = 0;
    // SAFETY: `device` is ours to write.
    match thread::call(|| unsafe { real::cuCtxGetDevice(&mut device) }) {
        SUCCESS => u8::try_from(device).unwrap_or(Event::NO_DEVICE),
        _ => Event::NO_DEVICE,
    }
}

/// This thread's current context may be another now.
#[inline]
pub fn changed() {
    thread::with(|t| t.epoch.set(0));
}

/// A context has ended: what any thread remembers of it is invalid from now on.
pub fn gone() {
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

/// From now on every call asks the driver.
pub fn distrust() {
    DISTRUST.store(true, Ordering::Relaxed);
    gone();
}

/// A context has ended: memory is not served in it, wherever it is still current.
pub fn ended(context: Context) {
    if let Ok(mut ended) = ENDED.lock()
        && !ended.contains(&context.0)
    {
        if ended.len() == REMEMBERED {
            ended.remove(0);
        }
        ended.push(context.0);
        ANY_ENDED.store(true, Ordering::Release);
    }
    gone();
}

/// A context was made, or made anew with the handle of one that had ended.
pub fn made(context: Context) {
    if ANY_ENDED.load(Ordering::Acquire)
        && let Ok(mut ended) = ENDED.lock()
    {
        ended.retain(|one| *one != context.0);
    }
}

fn has_ended(handle: u64) -> bool {
    ANY_ENDED.load(Ordering::Acquire) && ENDED.lock().is_ok_and(|ended| ended.contains(&handle))
}

/// Whether the context that is current in this thread has ended: the driver refuses everything there.
#[inline]
pub fn is_destroyed() -> bool {
    ANY_ENDED.load(Ordering::Acquire) && current().is_none() && {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is ours to write.
        let asked = thread::call(|| unsafe { real::cuCtxGetCurrent(&mut handle) });
        asked == SUCCESS && !handle.is_null() && has_ended(handle as u64)
    }
}

/// Runs `f` with `context` current, which it usually is.
pub fn with<R>(context: Context, f: impl FnOnce() -> R) -> Result<R, CUresult> {
    thread::call(|| {
        if current() == Some(context) {
            return Ok(f());
        }
        push(context)?;
        changed();
        let result = f();
        pop(context);
        changed();
        Ok(result)
    })
}

/// `CU_CTX_SYNC_MEMOPS`: the host's copies that are named synchronous wait for the device, each of them.
const SYNC_MEMOPS: u32 = 0x80;

fn flags() -> Result<u32, CUresult> {
    let mut flags = 0;
    // SAFETY: `flags` is ours to write.
    check(unsafe { real::cuCtxGetFlags(&mut flags) })?;
    Ok(flags)
}

/// Whether all copies in a context that are named synchronous wait for the device.
pub fn has_sync_memops(context: Context) -> bool {
    let flags = with(context, flags).and_then(|flags| flags);
    flags.is_ok_and(|flags| flags & SYNC_MEMOPS != 0)
}

/// From now on all of them do. They go on to until the context ends.
///
/// # Errors
/// The driver's, if it is older than CUDA 12.3.
pub fn set_sync_memops(context: Context) -> Result<(), CUresult> {
    with(context, || {
        let flags = flags()?;
        // SAFETY: no memory is passed.
        check(unsafe { real::cuCtxSetFlags(flags | SYNC_MEMOPS) })
    })?
}

/// Makes a context current. A living context's push is not refused twice; what has to be done in it would be lost.
fn push(context: Context) -> Result<(), CUresult> {
    // SAFETY: the handle is a context's that the process made current before.
    let again = || unsafe { real::cuCtxPushCurrent_v2(context.0 as *mut _) };
    match again() {
        SUCCESS => Ok(()),
        _ => match again() {
            SUCCESS => Ok(()),
            error => Err(error),
        },
    }
}

/// Undoes [`push`]: the host's thread must not be left in a context that it did not choose.
fn pop(context: Context) {
    let mut popped = std::ptr::null_mut();
    for _ in 0..2 {
        // SAFETY: `popped` is ours to write; this undoes the push.
        if unsafe { real::cuCtxPopCurrent_v2(&mut popped) } == SUCCESS {
            return;
        }
        let mut now = std::ptr::null_mut();
        // SAFETY: `now` is ours to write.
        let asked = unsafe { real::cuCtxGetCurrent(&mut now) };
        if asked == SUCCESS && now as u64 != context.0 {
            // The context was popped although the driver reports an earlier failure.
            return;
        }
    }
}
