//! Waits for a context's work while streams capture.
//!
//! The driver then refuses each wait for a context, and each event of one. In the relaxed mode it
//! allows its free, which first waits for all work of the context. So a small allocation is kept
//! ready for such a free: when memory is short, none can be made. It is freed when no stream has
//! captured for a while.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use gpushim_alloc::Context;
use gpushim_alloc::gate;

use crate::base::thread;
use crate::cuda::captures::{self, relaxed};
use crate::cuda::functions::real;
use crate::cuda::types::{CAPTURE_UNSUPPORTED, CUresult, OUT_OF_MEMORY, check};
use crate::cuda::{context, device, green};
use crate::memory::limit::{self, Claim, Place};
use crate::memory::make_room;

/// An allocation that is kept for a wait.
#[derive(Clone, Copy)]
struct Kept {
    of: Context,
    /// Number of contexts that had ended before it was made. With the context's handle it shows if
    /// that context still lives.
    born: u64,
    address: u64,
}

/// State of the allocations: the kept ones, the number of pending requests to the driver, and the
/// addresses of pending frees.
struct All {
    coming: usize,
    kept: Vec<Kept>,
    leaving: Vec<u64>,
}

static ALL: Mutex<All> = Mutex::new(All {
    coming: 0,
    kept: Vec::new(),
    leaving: Vec::new(),
});
/// Longest time that a free of an address waits while the address may be one of these, and the time
/// between two looks.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(50);
/// True if a capture began since the last tick of [`decay`].
static IS_RECENT: AtomicBool = AtomicBool::new(false);

/// Allocates one from the driver, and adds it by `enter`.
fn allocate(of: Context, enter: fn(&mut All, Kept)) -> Result<Kept, CUresult> {
    let (born, mut address) = (gate::ends(), 0);
    let claim = match limit::limit() {
        Some(_) => limit::reserve(device::driver().ordinal_of(of)?, 1),
        None => Some(Claim::none()),
    };
    let claim = claim.ok_or(OUT_OF_MEMORY)?;
    // SAFETY: `address` is ours to write.
    let call = || relaxed(|| unsafe { real::cuMemAlloc_v2(&mut address, 1) });
    if let Ok(mut all) = ALL.lock() {
        all.coming += 1;
    }
    let result = context::with(of, || thread::call(call)).and_then(check);
    if result.is_ok() {
        claim.keep(Place::of_block(of, address, 1), 1);
    }
    let kept = Kept { of, born, address };
    if let Ok(mut all) = ALL.lock() {
        all.coming -= 1;
        if result.is_ok() {
            enter(&mut all, kept);
        }
    }
    result.map(|()| kept)
}

fn stays(all: &mut All, kept: Kept) {
    all.kept.push(kept);
}

fn leaves(all: &mut All, kept: Kept) {
    all.leaving.push(kept.address);
}

/// Takes the allocation of a context. It counts as leaving until [`left`].
fn take(of: Context) -> Option<Kept> {
    let mut all = ALL.lock().ok()?;
    let at = all.kept.iter().position(|kept| kept.of == of)?;
    let kept = all.kept.swap_remove(at);
    all.leaving.push(kept.address);
    Some(kept)
}

/// Removes an allocation from the leaving ones: the driver has answered.
fn left(address: u64) {
    if let Ok(mut all) = ALL.lock()
        && let Some(at) = all.leaving.iter().position(|other| *other == address)
    {
        all.leaving.swap_remove(at);
    }
}

/// Frees an allocation that is leaving. The driver first waits for the work of its context.
fn free(kept: &Kept) -> Result<(), CUresult> {
    // SAFETY: the address is of an allocation that nothing else knows.
    let call = || relaxed(|| unsafe { real::cuMemFree_v2(kept.address) });
    check(context::with(kept.of, || thread::call(call))?)?;
    limit::give(Place::of_block(kept.of, kept.address, 1));
    Ok(())
}

/// Keeps an allocation for a context in which a stream is about to capture.
pub fn prepare(of: Context) {
    // Memory made in a green context belongs to the primary context: its free would wait for the
    // primary context's work.
    if green::is(of) {
        return;
    }
    IS_RECENT.store(true, Ordering::Relaxed);
    let is_kept = |all: &All| all.kept.iter().any(|kept| kept.of == of);
    if !ALL.lock().is_ok_and(|all| is_kept(&all))
        && let Err(error) = allocate(of, stays)
    {
        allocate_from_cache(of, error);
    }
}

/// Tries again after `error`. If memory is short because pools keep it, they first give some of it
/// back. They can do so now, but not while a stream captures without the allocation made here.
fn allocate_from_cache(of: Context, error: CUresult) {
    if error != OUT_OF_MEMORY {
        return;
    }
    if let Ok(device) = device::driver().ordinal_of(of)
        && make_room::give_complete(device, 1) > 0
        && allocate(of, stays).is_ok()
    {
        return;
    }
    make_room::make_room(None);
    // Without the allocation, a wait asks the driver for one when it needs it.
    let _ = allocate(of, stays);
}

/// True if memory at an address is a kept allocation. The program must not free it, as it could
/// when it frees an earlier block at this address twice. If such an allocation is just being made
/// or freed, waits for the driver's answer first.
///
/// The allocation of a context that ends does not count: the program may have other memory at its
/// address before the driver's call returns.
pub fn owns(address: u64) -> bool {
    let since = Instant::now();
    let is_there = |kept: &Kept| kept.address == address && gate::lives(kept.of, kept.born);
    loop {
        let Ok(all) = ALL.lock() else { return false };
        if all.kept.iter().any(is_there) {
            return true;
        }
        let is_leaving = all.leaving.contains(&address);
        if !is_leaving && all.coming == 0 || since.elapsed() > PATIENCE {
            return is_leaving;
        }
        drop(all);
        sleep(PAUSE);
    }
}

/// Waits for all work that was submitted to a context before this call.
///
/// # Errors
/// The driver's; [`CAPTURE_UNSUPPORTED`] of a green context in which a stream captures.
pub fn context(of: Context) -> Result<(), CUresult> {
    // Without a capture an ordinary wait works, which takes no memory.
    match device::driver().synchronize(of) {
        Err(CAPTURE_UNSUPPORTED) => {}
        result => return result,
    }
    if green::is(of) {
        return Err(CAPTURE_UNSUPPORTED);
    }
    let Some(_pass) = gate::enter(of) else {
        return Ok(());
    };
    let mut first = take(of);
    // An allocation of an ended context with this handle is gone, and its address may now belong to
    // other memory.
    while let Some(old) = first.take_if(|kept| !gate::lives(of, kept.born)) {
        left(old.address);
        first = take(of);
    }
    let first = match first {
        Some(kept) => kept,
        None => allocate(of, leaves)?,
    };
    let (address, result) = (first.address, free(&first));
    match result {
        // Made before the old one counts as freed: mostly, the new one has the same address.
        Ok(()) => drop(allocate(of, stays)),
        Err(_) => {
            if let Ok(mut all) = ALL.lock() {
                stays(&mut all, first);
            }
        }
    }
    left(address);
    result
}

/// Removes the kept allocations of a context that has ended.
pub fn context_gone(gone: Context) {
    // Two threads that began captures may each have made one.
    while let Some(kept) = take(gone) {
        left(kept.address);
    }
}

/// Frees the kept allocations if no stream has captured since the last tick: a tick of the
/// background thread.
pub fn decay() {
    if IS_RECENT.swap(false, Ordering::Relaxed) || captures::any() {
        return;
    }
    let of = |all: &All| all.kept.iter().map(|kept| kept.of).collect::<Vec<_>>();
    let idle = ALL.lock().map_or_else(|_| Vec::new(), |all| of(&all));
    for kept in idle.into_iter().filter_map(take) {
        // The allocation of a context that ended meanwhile is gone, and its address may now belong
        // to other memory.
        if let Some(_pass) = gate::enter_since(kept.of, kept.born) {
            // A refusal means that the context ended, and the allocation with it.
            let _ = free(&kept);
        }
        left(kept.address);
    }
}
