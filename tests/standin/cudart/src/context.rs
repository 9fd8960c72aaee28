//! Choice of a thread's device, whose primary context is made current before it is needed.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard};

use crate::driver::{Code, Door, Driver, Handle, SUCCESS, driver};
use crate::version::lazy;

thread_local! {
    static DEVICE: Cell<c_int> = const { Cell::new(0) };
    /// True if `cudaSetDevice` was called and its context is not current yet: runtimes before CUDA
    /// 12.
    static OWED: Cell<bool> = const { Cell::new(false) };
}

/// Primary context that this runtime has retained at least once. A reset keeps its handle but ends
/// the retain.
struct Primary {
    device: c_int,
    context: usize,
    retained: bool,
}

fn primaries() -> MutexGuard<'static, Vec<Primary>> {
    static PRIMARIES: Mutex<Vec<Primary>> = Mutex::new(Vec::new());
    PRIMARIES
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Returns the primary context of a device, retained once for the process.
pub fn primary(driver: &Driver, device: c_int) -> Result<Handle, Code> {
    let mut all = primaries();
    if let Some(known) = all
        .iter()
        .find(|known| known.device == device && known.retained)
    {
        return Ok(known.context as Handle);
    }
    let mut context = null_mut();
    // SAFETY: the result is a local of this function.
    match unsafe { driver.cuDevicePrimaryCtxRetain(&mut context, device) } {
        SUCCESS => {
            all.retain(|known| known.device != device);
            all.push(Primary {
                device,
                context: context as usize,
                retained: true,
            });
            Ok(context)
        }
        code => Err(code),
    }
}

/// Notes that the device was reset: its primary context must be retained anew.
pub fn forget(device: c_int) {
    for known in primaries()
        .iter_mut()
        .filter(|known| known.device == device)
    {
        known.retained = false;
    }
}

fn make_current(driver: &Driver, device: c_int) -> Result<(), Code> {
    let context = primary(driver, device)?;
    // SAFETY: a retained primary context is a live one.
    match unsafe { driver.cuCtxSetCurrent(context) } {
        SUCCESS => Ok(()),
        code => Err(code),
    }
}

fn current(driver: &Driver) -> Result<Handle, Code> {
    let mut context = null_mut();
    // SAFETY: the result is a local of this function.
    match unsafe { driver.cuCtxGetCurrent(&mut context) } {
        SUCCESS => Ok(context),
        code => Err(code),
    }
}

/// Makes a context current, if there is none: the primary context of the thread's device. Replaces
/// a current primary context that was reset.
pub fn ensure(driver: &Driver) -> Result<(), Code> {
    let now = current(driver)? as usize;
    if OWED.get() || now == 0 {
        make_current(driver, DEVICE.get())?;
        OWED.set(false);
        return Ok(());
    }
    // A primary context that was reset is still current but unusable.
    let reset = primaries()
        .iter()
        .find(|known| known.context == now && !known.retained)
        .map(|known| known.device);
    match reset {
        Some(device) => make_current(driver, device),
        None => Ok(()),
    }
}

/// Returns the thread's device: its current context's, or else the one it has chosen.
pub fn device(driver: &Driver) -> Result<c_int, Code> {
    let context = current(driver)?;
    if OWED.get() || context.is_null() {
        return Ok(DEVICE.get());
    }
    let mut device = 0;
    // SAFETY: the result is a local of this function and the context is the current one.
    match unsafe { driver.cuCtxGetDevice(&mut device, context) } {
        SUCCESS => Ok(device),
        code => Err(code),
    }
}

/// Waits for all work of the current context.
pub fn synchronize(driver: &Driver) -> Code {
    match current(driver) {
        // SAFETY: the context is the current one.
        Ok(context) => unsafe { driver.cuCtxSynchronize(context) },
        Err(code) => code,
    }
}

/// Sets the thread's device. From CUDA 12 on its primary context becomes current at once.
pub fn choose(driver: &Driver, device: c_int) -> Code {
    if lazy() {
        OWED.set(true);
    } else if let Err(code) = make_current(driver, device) {
        return code;
    }
    DEVICE.set(device);
    SUCCESS
}

/// Runs a call that needs a current context.
pub fn with(door: Door, body: impl FnOnce(&'static Driver) -> Code) -> Code {
    match driver(door).and_then(|driver| ensure(driver).map(|()| driver)) {
        Ok(driver) => body(driver),
        Err(code) => code,
    }
}

/// Runs a call that needs the driver only.
pub fn without(door: Door, body: impl FnOnce(&'static Driver) -> Code) -> Code {
    match driver(door) {
        Ok(driver) => body(driver),
        Err(code) => code,
    }
}
