//! Memory that pools hold beyond their threshold: given back at synchronisations, or when no capture holds it any more.

use std::sync::atomic::Ordering;

use gpushim_alloc::pool::Mark;
use gpushim_alloc::{Context, Stream};

use crate::cuda::types::SUCCESS;
use crate::cuda::{captures, device};
use crate::memory::activity::Active;
use crate::memory::peer_access;
use crate::memory::registry::{self, RegisteredPool, all};
use crate::record::events;

/// Gives back what a pool must not keep at a synchronisation; memory that captures and graphs hold is given back later.
pub fn release_surplus(entry: &RegisteredPool) {
    if !entry.pool.is_above_threshold() {
        return;
    }
    let waits = captures::any() || {
        trim_to(entry, entry.pool.threshold());
        entry.pool.stats().quarantined > 0
    };
    entry.owes.store(waits, Ordering::Relaxed);
}

/// A capture is over, or a graph is gone: what pools were to give back before goes.
pub fn release_owed() {
    if !captures::any() {
        let owing = |entry: &&RegisteredPool| entry.owes.swap(false, Ordering::Relaxed);
        all().filter(owing).for_each(release_surplus);
    }
}

/// Gives back what a pool holds beyond `keep` bytes, because the program asked for that.
pub fn trim_to(entry: &RegisteredPool, keep: u64) {
    let _active = Active::begin();
    let bytes = entry.pool.trim_streams(device::driver(), keep);
    events::trimmed_to(entry.device, keep, bytes);
}

/// Calls a function that waits for a stream or for a whole context, after which pools know what
/// is over and give back what they are not to keep.
pub fn synchronize(
    context: Option<Context>,
    stream: Option<Stream>,
    call: impl FnOnce() -> u32,
) -> u32 {
    let Some(context) = context.filter(|_| registry::any()) else {
        return call();
    };
    // A stream's synchronisation is frequent: it is only of interest where memory may go back.
    let interested = |entry: &&RegisteredPool| stream.is_none() || entry.pool.is_above_threshold();
    let alone = !peer_access::any() || peer_access::of(context).is_empty();
    let marks: Vec<(&RegisteredPool, Mark)> = all()
        .filter(interested)
        .map(|entry| (entry, entry.pool.mark(context, stream, alone)))
        .collect();
    let result = call();
    if result == SUCCESS {
        for (entry, marks) in &marks {
            entry.pool.synchronized(marks);
            release_surplus(entry);
        }
    }
    result
}
