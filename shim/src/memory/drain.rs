//! Waiting for a context's work while streams capture.
//!
//! Nothing that waits for a context, and no event of one, is allowed then. But the driver's free is, in the relaxed
//! mode, and it waits for all work of the context first. So a small allocation is kept ready for such a free, because
//! when memory is short none can be made. It is freed when no stream has captured for a while.

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
use crate::memory::budget::{self, Claim, Place};
use crate::memory::room;

/// An allocation that is kept for a wait.
#[derive(Clone, Copy)]
struct Kept {
    of: Context,
    /// Ends of contexts before it was made: with the context's handle this identifies whether the context still lives.
    born: u64,
    address: u64,
}

/// All that are kept, how many the driver is being asked for, and the addresses of those that it is being told to
/// take back.
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
/// How long a free of an address that may be one of these waits for the driver, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(50);
/// Whether a capture began since the last tick of [`decay`].
static IS_RECENT: AtomicBool = AtomicBool::new(false);

/// Allocates one from the driver, and enters it.
fn allocate(of: Context, enter: fn(&mut All, Kept)) -> Result<Kept, CUresult> {
    let (born, mut address) = (gate::ends(), 0);
    let claim = match budget::limit() {
        Some(_) => budget::reserve(device::driver().ordinal_of(of)?, 1),
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

/// Takes the allocation of a context; it counts as leaving until [`left`].
fn take(of: Context) -> Option<Kept> {
    let mut all = ALL.lock().ok()?;
    let at = all.kept.iter().position(|kept| kept.of == of)?;
    let kept = all.kept.swap_remove(at);
    all.leaving.push(kept.address);
    Some(kept)
}

/// The driver has answered: the allocation no longer counts as leaving.
fn left(address: u64) {
    if let Ok(mut all) = ALL.lock()
        && let Some(at) = all.leaving.iter().position(|other| *other == address)
    {
        all.leaving.swap_remove(at);
    }
}

/// Frees one that is leaving: the driver waits for the work of its context first.
fn free(kept: &Kept) -> Result<(), CUresult> {
    // SAFETY: the address is of an allocation that nothing else knows.
    let call = || relaxed(|| unsafe { real::cuMemFree_v2(kept.address) });
    check(context::with(kept.of, || thread::call(call))?)?;
    budget::give(Place::of_block(kept.of, kept.address, 1));
    Ok(())
}

/// A stream of a context is about to capture.
pub fn prepare(of: Context) {
    // Memory made in a green context belongs to the primary context: to free it would wait for that context's work.
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

/// Tries again after `error`: if memory is short because pools keep it, they give some of it back first. While a
/// stream captures they could not, for want of what is allocated here.
fn allocate_from_cache(of: Context, error: CUresult) {
    if error != OUT_OF_MEMORY {
        return;
    }
    if let Ok(device) = device::driver().ordinal_of(of)
        && room::give_complete(device, 1) > 0
        && allocate(of, stays).is_ok()
    {
        return;
    }
    room::make_room(None);
    // Without it a wait asks the driver for one when it is needed.
    let _ = allocate(of, stays);
}

/// Whether memory at an address is such an allocation of ours, which the program must not free (a program may free an
/// earlier block at this address twice). If one is just being allocated or freed, waits for the driver's answer first.
pub fn owns(address: u64) -> bool {
    let since = Instant::now();
    loop {
        let Ok(all) = ALL.lock() else { return false };
        if all.kept.iter().any(|kept| kept.address == address) {
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

/// Waits for all work that was submitted to a context so far.
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
    // An allocation of an earlier context with this handle ended with it, and its address may belong to another one.
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
        // Before the old one has left: the new one has the same address, mostly.
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

/// A context has ended, with what was kept there.
pub fn context_gone(gone: Context) {
    // Two threads that begin captures may each have made one.
    while let Some(kept) = take(gone) {
        left(kept.address);
    }
}

/// The background thread's tick: what is kept goes back if no stream has captured since the tick before.
pub fn decay() {
    if IS_RECENT.swap(false, Ordering::Relaxed) || captures::any() {
        return;
    }
    let of = |all: &All| all.kept.iter().map(|kept| kept.of).collect::<Vec<_>>();
    let idle = ALL.lock().map_or_else(|_| Vec::new(), |all| of(&all));
    for kept in idle.into_iter().filter_map(take) {
        // The allocation of a context that ended meanwhile is gone, and its address may belong to another one.
        if let Some(_pass) = gate::enter_since(kept.of, kept.born) {
            // A refusal means that the context ended with what was in it.
            let _ = free(&kept);
        }
        left(kept.address);
    }
}
