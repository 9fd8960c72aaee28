//! Devices: choice, synchronisation, reset, versions, and the driver's functions by name.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::context;
use crate::driver::{Code, Door, INVALID_DEVICE, INVALID_VALUE, SUCCESS, loaded};
use crate::version::version;

entries! {
    /// Number of devices; with none, error 100.
    fn cudaGetDeviceCount(count: *mut c_int) [driver] { forward!(driver.cuDeviceGetCount(count)) }

    /// The thread's device.
    fn cudaGetDevice(device: *mut c_int) [driver] {
        match context::device(driver) {
            Ok(_) if device.is_null() => INVALID_VALUE,
            Ok(now) => {
                // SAFETY: checked just above; otherwise the caller's promise.
                unsafe { *device = now };
                SUCCESS
            }
            Err(code) => code,
        }
    }

    /// Chooses the thread's device.
    fn cudaSetDevice(device: c_int) [driver] {
        let mut count = 0;
        match forward!(driver.cuDeviceGetCount(&mut count)) {
            SUCCESS if device < 0 || device >= count => INVALID_DEVICE,
            SUCCESS => context::choose(driver, device),
            code => code,
        }
    }

    /// Has the device's context made, and current.
    fn cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint) [driver] {
        match context::primary(driver, device) {
            Ok(_) => SUCCESS,
            Err(code) => code,
        }
    }

    /// Waits for all work of the context.
    fn cudaDeviceSynchronize() |driver| { context::synchronize(driver) }

    /// Destroys all that the process holds on the thread's device.
    fn cudaDeviceReset() [driver] {
        match context::device(driver) {
            Ok(device) => {
                context::forget(device);
                forward!(driver.cuDevicePrimaryCtxReset(device))
            }
            Err(code) => code,
        }
    }

    /// Flags for the primary context of the thread's device.
    fn cudaSetDeviceFlags(flags: c_uint) [driver] {
        match context::device(driver) {
            Ok(device) => forward!(driver.cuDevicePrimaryCtxSetFlags(device, flags)),
            Err(code) => code,
        }
    }

    /// Flags of the primary context of the thread's device.
    fn cudaGetDeviceFlags(flags: *mut c_uint) [driver] {
        let mut active = 0;
        match context::device(driver) {
            Ok(device) => forward!(driver.cuDevicePrimaryCtxGetState(device, flags, &mut active)),
            Err(code) => code,
        }
    }

    /// An attribute; the numbers are the driver's.
    fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) [driver] {
        forward!(driver.cuDeviceGetAttribute(value, attribute, device))
    }

    /// PCI address as text.
    fn cudaDeviceGetPCIBusId(id: *mut c_char, length: c_int, device: c_int) [driver] {
        forward!(driver.cuDeviceGetPCIBusId(id, length, device))
    }

    /// Device by PCI address.
    fn cudaDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char) [driver] {
        forward!(driver.cuDeviceGetByPCIBusId(device, id))
    }

    /// Lowest and highest stream priority.
    fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) |driver| {
        forward!(driver.cuCtxGetStreamPriorityRange(least, greatest))
    }

    /// A limit of the context.
    fn cudaDeviceGetLimit(value: *mut usize, limit: c_int) |driver| { forward!(driver.cuCtxGetLimit(value, limit)) }

    /// Sets a limit of the context.
    fn cudaDeviceSetLimit(limit: c_int, value: usize) |driver| { forward!(driver.cuCtxSetLimit(limit, value)) }

    /// Free and total bytes of the device.
    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) |driver| { forward!(driver.cuMemGetInfo(free, total)) }
}

/// The driver's version; 0 where there is no driver.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDriverGetVersion(version: *mut c_int) -> Code {
    crate::error::finish(context::without(Door::Legacy, |driver| {
        forward!(driver.cuDriverGetVersion(version))
    }))
}

/// The runtime's version.
///
/// # Safety
/// `result` is null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaRuntimeGetVersion(result: *mut c_int) -> Code {
    if result.is_null() {
        return crate::error::finish(INVALID_VALUE);
    }
    // SAFETY: checked above; otherwise the caller's promise.
    unsafe { *result = version() };
    SUCCESS
}

/// How `cudaGetDriverEntryPoint` answers, from the driver's code and status.
fn entry_point(
    name: *const c_char,
    found: *mut *mut c_void,
    asked: c_int,
    flags: u64,
    status: *mut c_int,
) -> Code {
    let loaded = match loaded() {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    let mut answer = 0;
    // SAFETY: the caller's name and pointer; the status is ours.
    let code = unsafe { loaded.lookup.ask(name, found, asked, flags, &mut answer) };
    if status.is_null() {
        return code;
    }
    // SAFETY: checked above; otherwise the caller's promise.
    unsafe { *status = answer };
    // With a status to tell it, an unknown name is no error.
    if answer != 0 { SUCCESS } else { code }
}

/// A function of the driver, at this runtime's version.
///
/// # Safety
/// As the CUDA runtime's function of the same name asks.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDriverEntryPoint(
    name: *const c_char,
    found: *mut *mut c_void,
    flags: u64,
    status: *mut c_int,
) -> Code {
    crate::error::finish(entry_point(name, found, version(), flags, status))
}

/// A function of the driver, at the version asked for.
///
/// # Safety
/// As the CUDA runtime's function of the same name asks.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    found: *mut *mut c_void,
    asked: c_uint,
    flags: u64,
    status: *mut c_int,
) -> Code {
    crate::error::finish(entry_point(name, found, asked as c_int, flags, status))
}
