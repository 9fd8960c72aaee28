//! Green contexts: their memory belongs to their device's primary context, and outlives them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use gpushim_alloc::Context;

/// A green context of the program.
#[derive(Clone, Copy)]
pub struct Green {
    /// Its handle, a `CUgreenCtx`.
    pub handle: u64,
    /// The `CUcontext` that stands for it.
    pub context: Context,
    /// The primary context of its device.
    pub primary: Context,
    /// The ordinal of its device.
    pub device: i32,
}

static TABLE: Mutex<Vec<Green>> = Mutex::new(Vec::new());

/// True if there are any: most processes have none.
static ANY: AtomicBool = AtomicBool::new(false);

/// Adds a green context that was made.
pub fn made(green: Green) {
    if let Ok(mut table) = TABLE.lock() {
        table.push(green);
        ANY.store(true, Ordering::Release);
    }
}

/// Finds the green context of a `CUgreenCtx`.
pub fn known(handle: u64) -> Option<Green> {
    let table = TABLE.lock().ok()?;
    table.iter().find(|green| green.handle == handle).copied()
}

/// Removes a green context that has ended.
pub fn gone(handle: u64) {
    if let Ok(mut table) = TABLE.lock() {
        table.retain(|green| green.handle != handle);
        ANY.store(!table.is_empty(), Ordering::Release);
    }
}

/// True if a context stands for a green one: the driver serves the allocations in it.
#[inline]
pub fn is(context: Context) -> bool {
    ANY.load(Ordering::Acquire) && owner(context) != context
}

/// Returns the context to which memory belongs that is allocated in this one.
pub fn owner(context: Context) -> Context {
    let Ok(table) = TABLE.lock() else {
        return context;
    };
    let green = table.iter().find(|green| green.context == context);
    green.map_or(context, |green| green.primary)
}
