//! The limit on the memory that the process may hold of each device (`GPUSHIM_LIMIT`), for every kind of request: bytes
//! are claimed before the driver is asked, and returned when it refuses, so that no number of threads exceeds the
//! limit.
//!
//! The pool of `cudaMalloc` keeps the limit itself, too, before it asks: it gives cached memory back first
//! (`device_pool/grow.rs` of the allocator). Without a limit nothing is counted.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gpushim_alloc::Context;

use crate::base::settings;

/// Device ordinals, with one place for what is of no known device.
const DEVICES: usize = 256;

/// Bytes of each device that the process holds or is asking for.
static HELD: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

/// Bytes that end with a context, by its handle, with the device.
static OF_CONTEXTS: Mutex<Option<HashMap<u64, (i32, u64)>>> = Mutex::new(None);

/// Bytes per device, if there is a limit.
pub fn limit() -> Option<u64> {
    settings::config().limit
}

fn of(device: i32) -> &'static AtomicU64 {
    let known = usize::try_from(device).ok();
    known
        .and_then(|device| HELD.get(device))
        .unwrap_or(&HELD[DEVICES - 1])
}

/// Bytes taken for a request that the driver has not answered yet. Dropped, they are given back.
#[must_use]
pub struct Claim {
    device: i32,
    bytes: u64,
}

impl Claim {
    /// A claim of 0 bytes: for memory that does not count.
    pub fn none() -> Claim {
        let (device, bytes) = (0, 0);
        Claim { device, bytes }
    }

    /// The driver gave the memory: it is held until [`give`].
    pub fn keep(self) {
        std::mem::forget(self);
    }

    /// As [`Claim::keep`], for memory that ends with a context: held until [`give_in`].
    pub fn keep_in(self, context: Context) {
        if self.bytes > 0
            && let Ok(mut contexts) = OF_CONTEXTS.lock()
        {
            let contexts = contexts.get_or_insert_default();
            contexts.entry(context.0).or_insert((self.device, 0)).1 += self.bytes;
        }
        self.keep();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        give(self.device, self.bytes);
    }
}

/// Takes bytes of a device. `None`: the limit does not allow them.
pub fn reserve(device: i32, bytes: u64) -> Option<Claim> {
    let Some(limit) = limit() else {
        return Some(Claim::none());
    };
    let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= limit);
    of(device)
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
        .ok()
        .map(|_| Claim { device, bytes })
}

/// Bytes of a device went back to the driver.
pub fn give(device: i32, bytes: u64) {
    if bytes > 0 && limit().is_some() {
        let less = |held: u64| Some(held.saturating_sub(bytes));
        let _ = of(device).fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}

/// Bytes of a context's memory went back to the driver. Does nothing if the context has ended: its end released them.
pub fn give_in(context: Context, bytes: u64) {
    if bytes == 0 || limit().is_none() {
        return;
    }
    let given = OF_CONTEXTS.lock().ok().and_then(|mut contexts| {
        let (device, held) = contexts.as_mut()?.get_mut(&context.0)?;
        let given = bytes.min(*held);
        *held -= given;
        Some((*device, given))
    });
    if let Some((device, given)) = given {
        give(device, given);
    }
}

/// A request in a context, for which bytes were claimed, took these bytes.
pub fn correct_in(context: Context, claimed: u64, taken: u64) {
    give_in(context, claimed.saturating_sub(taken));
    let bytes = taken.saturating_sub(claimed);
    if bytes == 0 || limit().is_none() {
        return;
    }
    if let Ok(mut contexts) = OF_CONTEXTS.lock()
        && let Some((device, held)) = contexts.as_mut().and_then(|all| all.get_mut(&context.0))
    {
        *held += bytes;
        of(*device).fetch_add(bytes, Ordering::AcqRel);
    }
}

/// A context ended, and with it the memory that was in it.
pub fn context_gone(context: Context) {
    let gone = OF_CONTEXTS
        .lock()
        .ok()
        .and_then(|mut contexts| contexts.as_mut()?.remove(&context.0));
    if let Some((device, bytes)) = gone {
        give(device, bytes);
    }
}

/// Whether this number of further bytes of a device may be held. By the time they are asked for, others may have
/// them: [`reserve`] decides.
pub fn fits(device: i32, bytes: u64) -> bool {
    limit().is_none_or(|limit| held(device).saturating_add(bytes) <= limit)
}

/// Bytes of a device that the process holds or is asking for; 0 without a limit.
pub fn held(device: i32) -> u64 {
    of(device).load(Ordering::Acquire)
}
