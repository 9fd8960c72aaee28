//! Waiting for a context's work while streams capture.
//!
//! Nothing that waits for a context in which a stream captures, and no event of one, is allowed then. But the driver's
//! free is, in the relaxed mode, and it waits for all work of the context first. So a small allocation is kept for it: when
//! memory is short there may be none to be had. It goes back when no stream has captured for a while.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use gpushim_core::gate;
use gpushim_core::pool::{Context, Device};

use crate::device::{check, relaxed};
use crate::driver::{CAPTURE_UNSUPPORTED, CONTEXT_IS_DESTROYED, CUresult};
use crate::interpose::driver::memory::real as memory;
use crate::{capture, context, mempools, thread};

/// What is kept for it: contexts and addresses.
static KEPT: Mutex<Vec<(Context, u64)>> = Mutex::new(Vec::new());
/// Whether a capture began since the last tick of [`decay`].
static IS_RECENT: AtomicBool = AtomicBool::new(false);

fn allocate(of: Context) -> Result<u64, CUresult> {
    let mut address = 0;
    // SAFETY: `address` is ours to write.
    let call = || relaxed(|| unsafe { memory::cuMemAlloc_v2(&mut address, 1) });
    check(context::with(of, || thread::call(call))?).map(|()| address)
}

fn kept(of: Context) -> Option<u64> {
    let mut kept = KEPT.lock().ok()?;
    let at = kept.iter().position(|(context, _)| *context == of)?;
    Some(kept.swap_remove(at).1)
}

fn keep(of: Context, address: u64) {
    if let Ok(mut kept) = KEPT.lock() {
        kept.push((of, address));
    }
}

fn free(of: Context, address: u64) -> Result<(), CUresult> {
    // SAFETY: the address is of an allocation that nothing else knows.
    let call = || relaxed(|| unsafe { memory::cuMemFree_v2(address) });
    check(context::with(of, || thread::call(call))?)
}

/// Whether an address is what is kept. Where an allocation of the program was, there may be one of these.
pub fn keeps(address: u64) -> bool {
    let is_it = |kept: std::sync::MutexGuard<Vec<(Context, u64)>>| {
        kept.iter().any(|(_, kept)| *kept == address)
    };
    KEPT.lock().is_ok_and(is_it)
}

/// A stream of a context is about to capture.
pub fn prepare(of: Context) {
    IS_RECENT.store(true, Ordering::Relaxed);
    let is_kept = |kept: &Vec<(Context, u64)>| kept.iter().any(|(context, _)| *context == of);
    if !KEPT.lock().is_ok_and(|kept| is_kept(&kept))
        && let Ok(address) = allocate(of)
    {
        keep(of, address);
    }
}

/// Whether memory at an address is ours: it was never the program's, which may have freed what was there before
/// once more.
pub fn owns(address: u64) -> bool {
    KEPT.lock()
        .is_ok_and(|kept| kept.iter().any(|(_, of)| *of == address))
}

/// Waits for all work that was submitted to a context so far.
///
/// # Errors
/// The driver's.
pub fn context(of: Context) -> Result<(), CUresult> {
    // Where no stream captures it can be waited for as ever, which takes no memory.
    match Device::synchronize(mempools::driver(), of) {
        Err(CAPTURE_UNSUPPORTED) => {}
        result => return result,
    }
    let _pass = gate::enter(of).ok_or(CONTEXT_IS_DESTROYED)?;
    let address = match kept(of) {
        Some(address) => address,
        None => allocate(of)?,
    };
    free(of, address)?;
    if let Ok(address) = allocate(of) {
        keep(of, address);
    }
    Ok(())
}

/// A context has ended, with what was kept there.
pub fn context_gone(gone: Context) {
    kept(gone);
}

/// The background thread's tick: what is kept goes back if no stream has captured since the tick before.
pub fn decay() {
    if IS_RECENT.swap(false, Ordering::Relaxed) || capture::any() {
        return;
    }
    let Ok(mut kept) = KEPT.lock() else { return };
    let idle = std::mem::take(&mut *kept);
    drop(kept);
    for (of, address) in idle {
        if let Some(_pass) = gate::enter(of) {
            // A refusal means that the context ended with what was in it.
            let _ = free(of, address);
        }
    }
}
