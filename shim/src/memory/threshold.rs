//! Memory that pools hold beyond their threshold: given back at synchronisations, or once no
//! capture holds it.

use std::sync::atomic::Ordering;

use gpushim_alloc::pool::Mark;
use gpushim_alloc::{Context, Stream};

use crate::cuda::types::SUCCESS;
use crate::cuda::{captures, device};
use crate::memory::activity::Active;
use crate::memory::peer_access;
use crate::memory::registry::{self, RegisteredPool, all};
use crate::record::events;

/// Gives back memory that a pool must not keep at a synchronisation. Memory of captures and graphs
/// is given back later.
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

/// Gives back the memory that pools still owe, after the end of a capture or of a graph.
pub fn release_owed() {
    if !captures::any() {
        let owing = |entry: &&RegisteredPool| entry.owes.swap(false, Ordering::Relaxed);
        all().filter(owing).for_each(release_surplus);
    }
}

/// Gives back memory that a pool holds beyond `keep` bytes, because the program asked for it.
pub fn trim_to(entry: &RegisteredPool, keep: u64) {
    let _active = Active::begin();
    let bytes = entry.pool.trim_streams(device::driver(), keep);
    events::trimmed_to(entry.device, keep, bytes);
}

/// Calls a function that waits for a stream or for a whole context. Afterwards pools know the
/// complete work, and give surplus memory back.
pub fn synchronize(
    context: Option<Context>,
    stream: Option<Stream>,
    call: impl FnOnce() -> u32,
) -> u32 {
    let Some(context) = context.filter(|_| registry::any()) else {
        return call();
    };
    // Synchronisations of streams are frequent: only pools that may then give memory back take
    // part.
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
