//! Green contexts: their memory is their device's primary context's, and outlives them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use gpushim_alloc::Context;

/// A green context of the program's.
#[derive(Clone, Copy)]
pub struct Green {
    /// The `CUgreenCtx`.
    pub handle: u64,
    /// The `CUcontext` that stands for it.
    pub context: Context,
    /// The primary context of its device.
    pub primary: Context,
    /// The device's ordinal.
    pub device: i32,
}

static TABLE: Mutex<Vec<Green>> = Mutex::new(Vec::new());

/// Whether there are any: most processes have none.
static ANY: AtomicBool = AtomicBool::new(false);

/// A green context was made.
pub fn made(green: Green) {
    if let Ok(mut table) = TABLE.lock() {
        table.push(green);
        ANY.store(true, Ordering::Release);
    }
}

/// The green context of a `CUgreenCtx`.
pub fn known(handle: u64) -> Option<Green> {
    let table = TABLE.lock().ok()?;
    table.iter().find(|green| green.handle == handle).copied()
}

/// A green context has ended.
pub fn gone(handle: u64) {
    if let Ok(mut table) = TABLE.lock() {
        table.retain(|green| green.handle != handle);
        ANY.store(!table.is_empty(), Ordering::Release);
    }
}

/// Whether a context stands for a green one: the driver serves what is allocated in it.
#[inline]
pub fn is(context: Context) -> bool {
    ANY.load(Ordering::Acquire) && owner(context) != context
}

/// The context that memory belongs to which is allocated in one.
pub fn owner(context: Context) -> Context {
    let Ok(table) = TABLE.lock() else {
        return context;
    };
    let green = table.iter().find(|green| green.context == context);
    green.map_or(context, |green| green.primary)
}
