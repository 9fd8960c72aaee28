//! Waiting for a context's work while streams capture.
//!
//! Nothing that waits for a context, and no event of one, is allowed then. But the driver's free is, in the
//! relaxed mode, and it waits for all work of the context first. So a small allocation is kept for it: when
//! memory is short there may be none to be had.

use std::sync::Mutex;

use gpushim_core::pool::Context;

use crate::device::{check, relaxed};
use crate::driver::{CONTEXT_IS_DESTROYED, CUresult};
use crate::interpose::driver::memory::real as memory;
use gpushim_core::gate;

use crate::{context, thread};

/// What is kept for it: contexts and addresses.
static KEPT: Mutex<Vec<(Context, u64)>> = Mutex::new(Vec::new());

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

/// A stream of a context is about to capture.
pub fn prepare(of: Context) {
    let is_kept = |kept: &Vec<(Context, u64)>| kept.iter().any(|(context, _)| *context == of);
    if !KEPT.lock().is_ok_and(|kept| is_kept(&kept))
        && let Ok(address) = allocate(of)
    {
        keep(of, address);
    }
}

/// Waits for all work that was submitted to a context so far.
///
/// # Errors
/// The driver's.
pub fn context(of: Context) -> Result<(), CUresult> {
    let _pass = gate::enter(of).ok_or(CONTEXT_IS_DESTROYED)?;
    let address = match kept(of) {
        Some(address) => address,
        None => allocate(of)?,
    };
    // SAFETY: the address is of an allocation that nobody else knows.
    let call = || relaxed(|| unsafe { memory::cuMemFree_v2(address) });
    check(context::with(of, || thread::call(call))?)?;
    if let Ok(address) = allocate(of) {
        keep(of, address);
    }
    Ok(())
}

/// A context has ended, with what was kept there.
pub fn context_gone(gone: Context) {
    kept(gone);
}
