//! The current context of the calling thread, remembered so that mostly the driver need not be
//! asked.
//!
//! Every change of it passes through hooks (`hooks/driver/context.rs`). They call [`changed`] for
//! their own thread, or [`gone`] when a context ends and any thread may be affected.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpushim_alloc::Context;
use gpushim_trace::Event;

use crate::base::thread;
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, SUCCESS, check};

/// Number that changes when the contexts that threads remember become invalid.
static EPOCH: AtomicU64 = AtomicU64::new(1);

/// True once code in the process may change contexts without a hook.
static DISTRUST: AtomicBool = AtomicBool::new(false);

/// Contexts that have ended, the newest last. One may stay current in a thread: the driver then
/// refuses every call there.
static ENDED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
/// True if there are ended contexts.
static ANY_ENDED: AtomicBool = AtomicBool::new(false);
/// Most ended contexts to remember: an ended context matters while threads still use it.
const REMEMBERED: usize = 1024;

/// Returns the context that is current in this thread, if any.
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
    // Asked again if it fails: the error may be of earlier work. Without the right context, a free
    // would be ordered after the wrong context's work.
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

/// Returns the ordinal of the current context's device; [`Event::NO_DEVICE`] if there is none.
pub fn device() -> u8 {
    let mut device = 0;
    // SAFETY: `device` is ours to write.
    match thread::call(|| unsafe { real::cuCtxGetDevice(&mut device) }) {
        SUCCESS => u8::try_from(device).unwrap_or(Event::NO_DEVICE),
        _ => Event::NO_DEVICE,
    }
}

/// Forgets this thread's current context, which may have changed.
#[inline]
pub fn changed() {
    thread::with(|t| t.epoch.set(0));
}

/// Makes the contexts that all threads remember invalid, after the end of a context.
pub fn gone() {
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

/// Makes every later call ask the driver.
pub fn distrust() {
    DISTRUST.store(true, Ordering::Relaxed);
    gone();
}

/// Notes a context that has ended: no memory is served in it in any thread where it is still
/// current.
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

/// Notes a context that was made, perhaps with the handle of one that had ended.
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

/// True if the context that is current in this thread has ended: the driver refuses every call
/// there.
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

/// The driver's `CU_CTX_SYNC_MEMOPS`: each host copy that is named synchronous waits for the
/// device.
const SYNC_MEMOPS: u32 = 0x80;

fn flags() -> Result<u32, CUresult> {
    let mut flags = 0;
    // SAFETY: `flags` is ours to write.
    check(unsafe { real::cuCtxGetFlags(&mut flags) })?;
    Ok(flags)
}

/// True if all copies in a context that are named synchronous wait for the device.
pub fn has_sync_memops(context: Context) -> bool {
    let flags = with(context, flags).and_then(|flags| flags);
    flags.is_ok_and(|flags| flags & SYNC_MEMOPS != 0)
}

/// Makes all these copies wait for the device, until the context ends.
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

/// Makes a context current. Tried twice, because the driver does not refuse a living context twice:
/// without the push, the work to do in the context would be lost.
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

/// Undoes [`push`]: the host's thread must not stay in a context that it did not choose.
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
