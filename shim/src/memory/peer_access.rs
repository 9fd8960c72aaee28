//! Contexts whose work may use the memory of another one: its device's other contexts, and contexts
//! with peer access.
//!
//! A fence for all work that may use a block then has an event in each of them.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use gpushim_alloc::Context;

use crate::cuda::device::{self, Event};

#[derive(Default)]
struct Table {
    /// Contexts with the ordinals of their devices.
    known: Vec<(Context, i32)>,
    /// Devices, each with a context of another device that uses its memory. Kept when the access
    /// ends: earlier work may still be in progress.
    peers: Vec<(i32, Context)>,
    /// Events in other contexts that belong to one event.
    companions: Option<HashMap<Event, Vec<Event>>>,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    known: Vec::new(),
    peers: Vec::new(),
    companions: None,
});

/// True if work of several contexts may use the same memory: most processes have one context per
/// device.
static ANY: AtomicBool = AtomicBool::new(false);

/// True if work of several contexts may use the same memory.
#[inline]
pub fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Adds a context of a device.
pub fn known(context: Context, device: i32) {
    let Ok(mut table) = TABLE.lock() else { return };
    if !table.known.contains(&(context, device)) {
        table.known.push((context, device));
        ANY.store(table.known.len() > 1, Ordering::Relaxed);
    }
}

/// True if a context was made and has not ended.
pub fn is_known(context: Context) -> bool {
    let is_it = |(known, _): &(Context, i32)| *known == context;
    TABLE
        .lock()
        .is_ok_and(|table| table.known.iter().any(is_it))
}

/// Notes that a context may now use another context's memory.
pub fn peer(accessor: Context, owner: Context) {
    let Ok(device) = device::driver().ordinal_of(owner) else {
        return;
    };
    let Ok(mut table) = TABLE.lock() else { return };
    if !table.peers.contains(&(device, accessor)) {
        table.peers.push((device, accessor));
        ANY.store(true, Ordering::Relaxed);
    }
}

/// Removes a context that has ended, with its events.
pub fn gone(context: Context) {
    let Ok(mut table) = TABLE.lock() else { return };
    table.known.retain(|(known, _)| *known != context);
    table.peers.retain(|(_, accessor)| *accessor != context);
    for events in table.companions.iter_mut().flat_map(HashMap::values_mut) {
        events.retain(|event| event.context() != context);
    }
}

/// Returns the contexts whose work may use the memory of a device: its own, and others with peer
/// access.
pub fn on(device: i32) -> Vec<Context> {
    let Ok(table) = TABLE.lock() else {
        return Vec::new();
    };
    let own = table.known.iter().filter(|(_, on)| *on == device);
    let far = table.peers.iter().filter(|(of, _)| *of == device);
    let own = own.map(|(context, _)| *context);
    let mut all: Vec<_> = own.chain(far.map(|(_, accessor)| *accessor)).collect();
    all.sort_unstable_by_key(|context| context.0);
    all.dedup();
    all
}

/// Returns the other contexts whose work may use the memory of a context.
pub fn of(owner: Context) -> Vec<Context> {
    let device = device::driver().ordinal_of(owner);
    let mut all = device.map_or_else(|_| Vec::new(), on);
    all.retain(|context| *context != owner);
    all
}

/// Notes events of other contexts that belong to an event.
pub fn accompany(event: Event, others: Vec<Event>) {
    if let Ok(mut table) = TABLE.lock()
        && !others.is_empty()
    {
        let companions = table.companions.get_or_insert_default();
        companions.insert(event, others);
    }
}

/// Returns the events that belong to an event.
pub fn companions(event: Event) -> Vec<Event> {
    let table = TABLE.lock().ok();
    table
        .and_then(|table| {
            let all = table.companions.as_ref()?;
            all.get(&event).cloned()
        })
        .unwrap_or_default()
}

/// Removes and returns the events that belong to an event.
pub fn part(event: Event) -> Vec<Event> {
    let table = TABLE.lock().ok();
    table
        .and_then(|mut table| table.companions.as_mut()?.remove(&event))
        .unwrap_or_default()
}
