//! The memory of `cudaMalloc` in driver allocations: a pool for each context.

use gpushim_alloc::pool::{Backing, Settings};
use gpushim_alloc::{Context, Home, gate};

use crate::base::thread;
use crate::cuda::device;
use crate::memory::registry::{self, Kind, RegisteredPool, Requests};
use crate::memory::{policy, pool_life};

/// Returns the pool of a context, once there is one. Each thread remembers the last.
#[inline(always)]
pub fn known(context: Context) -> Option<&'static RegisteredPool> {
    let last = thread::with(|t| t.whole_entry.get()).cast::<RegisteredPool>();
    // SAFETY: null, or the address of an entry, which is never freed.
    match unsafe { last.as_ref() } {
        Some(entry) if entry.is_for(Requests::Context(context)) => Some(entry),
        _ => find(context),
    }
}

#[cold]
fn find(context: Context) -> Option<&'static RegisteredPool> {
    let entry = registry::find(Requests::Context(context))?;
    thread::with(|t| t.whole_entry.set(std::ptr::from_ref(entry).cast()));
    Some(entry)
}

/// Returns the pool of a context of a device, made if there is none.
pub fn pool(context: Context, device: i32) -> Option<&'static RegisteredPool> {
    policy::serves_whole(device);
    let home = Home {
        context,
        born: gate::ends(),
    };
    let settings = Settings {
        backing: Backing::Whole(home),
        ..pool_life::of_default()
    };
    pool_life::add(Requests::Context(context), device, settings)
}

/// Closes the pool of a context that is about to end: no address finds its blocks any more. Other
/// threads may get its addresses before the driver's call returns.
pub fn context_leaves(doomed: Context) {
    close(doomed, true);
}

/// Opens the pool of a context again that did not end.
pub fn context_stays(context: Context) {
    close(context, false);
}

fn close(context: Context, is_closed: bool) {
    if let Some(entry) = registry::find(Requests::Context(context)) {
        entry.close(is_closed);
    }
}

/// Removes the pool of a context that has ended, and its allocations. Returns the bytes that were
/// handed out and held.
pub fn context_gone(gone: Context) -> (u64, u64) {
    let Some(entry) = registry::find(Requests::Context(gone)) else {
        return (0, 0);
    };
    let bytes = entry.pool.home_gone(device::driver());
    entry.end();
    bytes
}

/// Gives freed blocks back to the driver that other processes or APIs could reach. Called after a
/// free.
#[inline]
pub fn freed(entry: &RegisteredPool) {
    if entry.kind == Kind::Context && entry.pool.has_exported() {
        entry.pool.release_exported(device::driver());
    }
}
