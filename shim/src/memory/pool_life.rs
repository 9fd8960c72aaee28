//! The life of pools: selects a device's current pool, and acts on the end of a pool or of a
//! context.

use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gpushim_alloc::Context;
use gpushim_alloc::pool::Settings;

use crate::base::{settings, thread};
use crate::cuda::functions::real;
use crate::cuda::types::SUCCESS;
use crate::cuda::{captures, context, device};
use crate::memory::caches::{self, Cache, News, Place, Search, Unused};
use crate::memory::registry::{self, Kind, RegisteredPool, Requests, all, changed, of};
use crate::memory::threshold::release_surplus;
use crate::memory::{context_drain, peer_access, policy};
use crate::record::events::Held;

/// Registers a pool, with its own settings.
pub fn add(requests: Requests, device: i32, settings: Settings) -> Option<&'static RegisteredPool> {
    // Before there is a pool: a new pool must know of a capture that begins meanwhile.
    caches::add(Place::Pools, &Pools);
    registry::add(requests, device, settings, || {
        if captures::any() {
            context::current()
                .into_iter()
                .for_each(context_drain::prepare);
        }
    })
}

/// Tells a pool if no context could use its device.
fn note_idle(entry: &RegisteredPool) {
    let is_alone = || peer_access::on(entry.device).is_empty();
    entry.pool.device_idle(is_alone);
}

/// Ends a pool that the program destroyed: its blocks live on until they are freed.
pub fn destroyed(handle: u64) {
    if let Some(entry) = of(handle) {
        entry.end();
        entry.pool.set_threshold(0);
        entry.pool.trim(device::driver(), 0);
        entry.pool.vacate(device::driver());
    }
    changed();
}

/// Returns a device's current pool, if this library serves it.
pub fn current(device: i32) -> Option<&'static RegisteredPool> {
    let (mut pool, mut of_driver) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: both are ours to write.
    let asked = thread::call(|| unsafe {
        match real::cuDeviceGetMemPool(&mut pool, device) {
            SUCCESS => real::cuDeviceGetDefaultMemPool(&mut of_driver, device),
            error => error,
        }
    });
    if asked != SUCCESS || pool.is_null() {
        return None;
    }
    // A pool that the program made was added when it was made, unless the driver keeps it.
    let entry = match pool == of_driver {
        true => default(device, pool as u64),
        false => of(pool as u64),
    };
    entry.filter(|entry| !entry.is_aside())
}

/// Returns a device's default pool, added if it is not yet.
pub fn default(device: i32, handle: u64) -> Option<&'static RegisteredPool> {
    of(handle).or_else(|| add_of_streams(handle, device, of_default()))
}

/// Registers a pool of streams, by the driver's handle. `None`: the driver's own pools serve the
/// device.
pub fn add_of_streams(
    handle: u64,
    device: i32,
    settings: Settings,
) -> Option<&'static RegisteredPool> {
    policy::serves_streams(device)
        .then(|| add(Requests::Streams(handle), device, settings))
        .flatten()
}

/// Returns the pool that serves a device's `cudaMalloc`, in pages. It is the default pool of the
/// device's streams, so that both families of calls share one cache. It is another pool if the
/// driver has no pools on the device.
pub fn serving_all(device: i32) -> Option<&'static RegisteredPool> {
    let make = || {
        let mut default_pool = ptr::null_mut();
        // SAFETY: `default_pool` is ours to write.
        let ask = || unsafe { real::cuDeviceGetDefaultMemPool(&mut default_pool, device) };
        if thread::call(ask) == SUCCESS {
            return default(device, default_pool as u64);
        }
        add(Requests::Device(device), device, of_default())
    };
    let entry = registry::serving_all(device)
        .or_else(|| make().inspect(|entry| registry::serve_all(entry)))?;
    (!entry.is_aside()).then_some(entry)
}

/// Returns the settings of a device's own pool.
pub fn of_default() -> Settings {
    Settings {
        reuse: settings::config().reuse,
        ..Settings::default()
    }
}

/// Prepares for the end of a context whose own work is complete.
pub fn context_leaves(doomed: Context) {
    for entry in all() {
        entry.pool.context_leaves(device::driver(), doomed);
    }
}

/// Removes the blocks of `cudaMalloc` in a context that has ended; stream-ordered blocks live on.
/// Returns the bytes that `cudaMalloc` had handed out there.
pub fn context_gone(gone: Context) -> u64 {
    changed();
    let mut live = 0;
    for entry in all() {
        live += entry.pool.context_gone(device::driver(), gone);
        note_idle(entry);
        if entry.serves_all() {
            entry.pool.trim(device::driver(), entry.pool.threshold());
        }
    }
    device::driver().forget(gone);
    context_drain::context_gone(gone);
    // The end of a context is a synchronisation, too.
    all().for_each(release_surplus);
    live
}

/// All pools, as one of the caches.
struct Pools;

impl Cache for Pools {
    fn make_room(&self, search: &Search) -> u64 {
        let others = registry::on(search.device);
        others
            .filter(|entry| search.asking != Some(entry.pool.id()))
            .map(|entry| {
                let pool = &entry.pool;
                pool.make_room(device::driver(), search.waits, search.patience)
            })
            .sum()
    }

    fn give_complete(&self, device: i32, bytes: u64, patience: Duration) -> u64 {
        registry::on(Some(device)).fold(0, |given, entry| match bytes.saturating_sub(given) {
            0 => given,
            missing => {
                given
                    + entry
                        .pool
                        .give_complete(device::driver(), missing, patience)
            }
        })
    }

    fn decay(&self) -> u64 {
        let mut given = 0;
        for entry in all() {
            note_idle(entry);
            given += entry.pool.decay(device::driver());
            // A destroyed pool gets no further requests.
            if entry.is_ended() {
                given += entry.pool.trim(device::driver(), 0);
                entry.pool.vacate(device::driver());
            }
        }
        given
    }

    fn returns(&self, device: i32) -> Option<u64> {
        registry::on(Some(device)).try_fold(0, |sum, entry| Some(sum + entry.pool.returns()?))
    }

    fn unused(&self, device: i32) -> Unused {
        let mut figures = Unused::default();
        for entry in registry::on(Some(device)) {
            let stats = entry.pool.stats();
            let unused = stats.cached();
            figures.all += unused;
            // Memory freed in a destroyed pool serves no further request of that pool.
            if entry.kind != Kind::Streams || entry.is_ended() {
                figures.cached += unused;
                continue;
            }
            figures.cached += stats.cached_for_all();
            if entry.owes.load(Ordering::Relaxed) {
                let surplus = stats
                    .reserved_on_streams()
                    .saturating_sub(entry.pool.threshold());
                figures.cached += unused.saturating_sub(stats.cached_for_all()).min(surplus);
            }
        }
        figures
    }

    fn held(&self, device: i32) -> Held {
        let mut held = Held::default();
        for entry in registry::on(Some(device)) {
            let stats = entry.pool.stats();
            held.allocated += stats.allocated;
            held.reserved += stats.reserved;
            held.quarantined += stats.quarantined;
            held.largest_free = held.largest_free.max(entry.pool.largest_free());
        }
        held
    }

    fn held_now(&self, device: i32) -> Option<u64> {
        registry::on(Some(device))
            .try_fold(0, |held, entry| Some(held + entry.pool.reserved_now()?))
    }

    fn note(&self, news: News) {
        for pool in all().map(|entry| &entry.pool) {
            match news {
                News::CaptureBegan(number) => pool.capture_began(number),
                News::CaptureEnded(number, graph) => pool.capture_ended(number, graph),
                News::CaptureBroken(number) => pool.capture_broken(number),
                News::GraphDerived(from, to) => pool.graph_derived(from, to),
                News::GraphDestroyed(graph) => pool.graph_destroyed(graph),
                News::Exported(address) if pool.owns(address) => pool.exported(address),
                News::Exported(_) => {}
            }
        }
    }
}
