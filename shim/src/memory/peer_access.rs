//! Contexts whose work may use the memory of another one: its device's other contexts, and those that
//! were given peer access. A fence for all work that may use a block then has an event in each.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use gpushim_alloc::Context;
use gpushim_alloc::device_pool::Device;

use crate::cuda::device::{self, Event};

#[derive(Default)]
struct Table {
    known: Vec<Context>,
    /// Owner and accessor. Kept when access ends: work from before may go on.
    peers: Vec<(Context, Context)>,
    /// The events of other contexts that belong to one, by its handle.
    companions: Option<HashMap<u64, Vec<Event>>>,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    known: Vec::new(),
    peers: Vec::new(),
    companions: None,
});

/// Whether there is any entry: most processes have one context for each device.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether the work of several contexts may use the same memory.
#[inline]
pub fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// A context exists.
pub fn known(context: Context) {
    let Ok(mut table) = TABLE.lock() else { return };
    if !table.known.contains(&context) {
        table.known.push(context);
        ANY.store(table.known.len() > 1, Ordering::Relaxed);
    }
}

/// Whether there is no context whose work could use any memory.
pub fn none() -> bool {
    TABLE.lock().is_ok_and(|table| table.known.is_empty())
}

/// One context may use another's memory from here on.
pub fn peer(accessor: Context, owner: Context) {
    let Ok(mut table) = TABLE.lock() else { return };
    if !table.peers.contains(&(owner, accessor)) {
        table.peers.push((owner, accessor));
        ANY.store(true, Ordering::Relaxed);
    }
}

/// A context has ended, with its events.
pub fn gone(context: Context) {
    let Ok(mut table) = TABLE.lock() else { return };
    table.known.retain(|known| *known != context);
    table
        .peers
        .retain(|(owner, accessor)| ![owner, accessor].contains(&&context));
    for events in table.companions.iter_mut().flat_map(HashMap::values_mut) {
        events.retain(|event| event.context() != context);
    }
}

/// A context of a device, if there is one.
pub fn on(device: i32) -> Option<Context> {
    let known = TABLE.lock().ok()?.known.clone();
    let ordinal = |context| device::driver().ordinal(context).ok();
    known
        .into_iter()
        .find(|known| ordinal(*known) == Some(device))
}

/// The contexts, beside itself, whose work may use the memory of one.
pub fn of(owner: Context) -> Vec<Context> {
    let Ok(table) = TABLE.lock() else {
        return Vec::new();
    };
    let (known, peers) = (table.known.clone(), table.peers.clone());
    drop(table);
    let ordinal = |context| device::driver().ordinal(context).ok();
    let device = ordinal(owner);
    let near = known.into_iter().filter(|known| ordinal(*known) == device);
    let far = peers.into_iter().filter(|(of, _)| *of == owner);
    let mut all: Vec<_> = near.chain(far.map(|(_, accessor)| accessor)).collect();
    all.retain(|context| *context != owner);
    all.sort_unstable_by_key(|context| context.0);
    all.dedup();
    all
}

/// Notes the events that belong to one.
pub fn accompany(event: Event, others: Vec<Event>) {
    if let Ok(mut table) = TABLE.lock()
        && !others.is_empty()
    {
        let companions = table.companions.get_or_insert_default();
        companions.insert(event.raw() as u64, others);
    }
}

/// The events that belong to one.
pub fn companions(event: Event) -> Vec<Event> {
    let table = TABLE.lock().ok();
    table
        .and_then(|table| {
            let all = table.companions.as_ref()?;
            all.get(&(event.raw() as u64)).cloned()
        })
        .unwrap_or_default()
}

/// As [`companions`], and removes them.
pub fn part(event: Event) -> Vec<Event> {
    let table = TABLE.lock().ok();
    table
        .and_then(|mut table| table.companions.as_mut()?.remove(&(event.raw() as u64)))
        .unwrap_or_default()
}
