//! Devices: choice, synchronisation, reset, versions, and the driver's functions by name.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::context;
use crate::driver::{Code, Door, INVALID_DEVICE, INVALID_VALUE, SUCCESS, loaded};
use crate::version::version;

entries! {
    /// Returns the number of devices; error 100 if there are none.
    fn cudaGetDeviceCount(count: *mut c_int) [driver] { forward!(driver.cuDeviceGetCount(count)) }

    /// Returns the thread's device.
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

    /// Sets the thread's device.
    fn cudaSetDevice(device: c_int) [driver] {
        let mut count = 0;
        match forward!(driver.cuDeviceGetCount(&mut count)) {
            SUCCESS if device < 0 || device >= count => INVALID_DEVICE,
            SUCCESS => context::choose(driver, device),
            code => code,
        }
    }

    /// Retains the primary context of a device.
    fn cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint) [driver] {
        match context::primary(driver, device) {
            Ok(_) => SUCCESS,
            Err(code) => code,
        }
    }

    /// Waits for all work of the context.
    fn cudaDeviceSynchronize() |driver| { context::synchronize(driver) }

    /// Destroys everything that the process holds on the thread's device.
    fn cudaDeviceReset() [driver] {
        match context::device(driver) {
            Ok(device) => {
                context::forget(device);
                forward!(driver.cuDevicePrimaryCtxReset(device))
            }
            Err(code) => code,
        }
    }

    /// Sets the flags of the primary context of the thread's device.
    fn cudaSetDeviceFlags(flags: c_uint) [driver] {
        match context::device(driver) {
            Ok(device) => forward!(driver.cuDevicePrimaryCtxSetFlags(device, flags)),
            Err(code) => code,
        }
    }

    /// Returns the flags of the primary context of the thread's device.
    fn cudaGetDeviceFlags(flags: *mut c_uint) [driver] {
        let mut active = 0;
        match context::device(driver) {
            Ok(device) => forward!(driver.cuDevicePrimaryCtxGetState(device, flags, &mut active)),
            Err(code) => code,
        }
    }

    /// Returns an attribute of a device; the numbers are the driver's.
    fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) [driver] {
        forward!(driver.cuDeviceGetAttribute(value, attribute, device))
    }

    /// Writes the PCI address of a device.
    fn cudaDeviceGetPCIBusId(id: *mut c_char, length: c_int, device: c_int) [driver] {
        forward!(driver.cuDeviceGetPCIBusId(id, length, device))
    }

    /// Returns a device by its PCI address.
    fn cudaDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char) [driver] {
        forward!(driver.cuDeviceGetByPCIBusId(device, id))
    }

    /// Returns lowest and highest stream priority.
    fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) |driver| {
        forward!(driver.cuCtxGetStreamPriorityRange(least, greatest))
    }

    /// Returns a limit of the context.
    fn cudaDeviceGetLimit(value: *mut usize, limit: c_int) |driver| { forward!(driver.cuCtxGetLimit(value, limit)) }

    /// Sets a limit of the context.
    fn cudaDeviceSetLimit(limit: c_int, value: usize) |driver| { forward!(driver.cuCtxSetLimit(limit, value)) }

    /// Returns free and total bytes of the device.
    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) |driver| { forward!(driver.cuMemGetInfo(free, total)) }
}

/// Returns the driver's version. Without a driver it fails.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDriverGetVersion(version: *mut c_int) -> Code {
    crate::error::finish(context::without(Door::Legacy, |driver| {
        forward!(driver.cuDriverGetVersion(version))
    }))
}

/// Returns the runtime's version.
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

/// Answers `cudaGetDriverEntryPoint` from the driver's code and status.
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
    // SAFETY: the caller's name and pointer; the status is a local of this function.
    let code = unsafe { loaded.lookup.ask(name, found, asked, flags, &mut answer) };
    if status.is_null() {
        return code;
    }
    // SAFETY: checked above; otherwise the caller's promise.
    unsafe { *status = answer };
    // With a status for the answer, an unknown name is no error.
    if answer != 0 { SUCCESS } else { code }
}

/// Looks up a function of the driver, at this runtime's version.
///
/// # Safety
/// The caller meets the requirements of the CUDA runtime's function of the same name.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDriverEntryPoint(
    name: *const c_char,
    found: *mut *mut c_void,
    flags: u64,
    status: *mut c_int,
) -> Code {
    crate::error::finish(entry_point(name, found, version(), flags, status))
}

/// Looks up a function of the driver, at the version asked for.
///
/// # Safety
/// The caller meets the requirements of the CUDA runtime's function of the same name.
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
