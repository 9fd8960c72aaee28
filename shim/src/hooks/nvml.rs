//! NVML's queries for a device's memory: the limit is the total. Only programs that look the
//! functions up get these, as Python's packages and PyTorch do.
//!
//! Layouts and signatures are from `nvml.h`, version 11 and later.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use gpushim_ledger::device_uuid;

use crate::base::{boundary, linker};
use crate::memory::limit;

/// `nvmlMemory_t`: bytes of a device.
#[repr(C)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlMemory_v2_t`: bytes of a device, with those that the driver keeps.
#[repr(C)]
struct Memory2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

type Query = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Uuid = unsafe extern "C" fn(*mut c_void, *mut c_char, c_uint) -> c_int;

const SUCCESS: c_int = 0;
/// NVML's `NVML_ERROR_FUNCTION_NOT_FOUND`.
const NOT_FOUND: c_int = 13;
/// NVML's `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
const UUID_BYTES: usize = 96;

/// Functions of NVML that were found for the program.
static MEMORY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static MEMORY_2: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static UUID: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Returns the replacement of a function of NVML that a program looks up in a library; null if the
/// function is not replaced.
pub fn substitute(library: *mut c_void, name: &CStr) -> *const c_void {
    let (place, ours) = match name.to_bytes() {
        b"nvmlDeviceGetMemoryInfo" => (&MEMORY, memory as *const c_void),
        b"nvmlDeviceGetMemoryInfo_v2" => (&MEMORY_2, memory_2 as *const c_void),
        _ => return ptr::null(),
    };
    let real = linker::symbol(library, name);
    let uuid = linker::symbol(library, c"nvmlDeviceGetUUID");
    if limit::limit().is_none() || real.is_null() || uuid.is_null() {
        return ptr::null();
    }
    UUID.store(uuid, Ordering::Release);
    place.store(real, Ordering::Release);
    ours
}

/// Answers `nvmlDeviceGetMemoryInfo`.
unsafe extern "C" fn memory(device: *mut c_void, memory: *mut c_void) -> c_int {
    ask(&MEMORY, device, memory, |[total, free]| {
        // SAFETY: NVML has just written this structure there.
        let memory = unsafe { &mut *memory.cast::<Memory>() };
        (memory.total, memory.free) = (memory.total.min(total), memory.free.min(free));
        memory.used = memory.total.saturating_sub(memory.free);
    })
}

/// Answers `nvmlDeviceGetMemoryInfo_v2`.
unsafe extern "C" fn memory_2(device: *mut c_void, memory: *mut c_void) -> c_int {
    ask(&MEMORY_2, device, memory, |[total, free]| {
        // SAFETY: NVML has just written this structure there.
        let memory = unsafe { &mut *memory.cast::<Memory2>() };
        (memory.total, memory.free) = (memory.total.min(total), memory.free.min(free));
        memory.reserved = 0;
        memory.used = memory.total.saturating_sub(memory.free);
    })
}

/// Calls NVML, and gives the limit's total and free bytes of the device to `adjust`.
fn ask(
    real: &AtomicPtr<c_void>,
    device: *mut c_void,
    memory: *mut c_void,
    adjust: impl FnOnce([u64; 2]),
) -> c_int {
    let real = real.load(Ordering::Acquire);
    if real.is_null() {
        return NOT_FOUND;
    }
    // SAFETY: NVML's function of this signature, found by its name; the caller's arguments.
    let result = unsafe { transmute::<*mut c_void, Query>(real)(device, memory) };
    if result == SUCCESS && !memory.is_null() {
        // Nothing begins here: the process may fork before it uses CUDA.
        let figures = || limit::of_uuid(uuid(device)?);
        if let Some(figures) = boundary::run(|| None, figures) {
            adjust(figures);
        }
    }
    result
}

/// Returns the UUID of NVML's device.
fn uuid(device: *mut c_void) -> Option<[u8; 16]> {
    let real = UUID.load(Ordering::Acquire);
    let mut name = [0 as c_char; UUID_BYTES];
    // SAFETY: NVML's function of this signature, found by its name; the array is ours to write.
    let result = unsafe {
        transmute::<*mut c_void, Uuid>(real)(device, name.as_mut_ptr(), UUID_BYTES as c_uint - 1)
    };
    // SAFETY: NVML wrote a C string, and the last byte is zero in any case.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    (result == SUCCESS).then(|| device_uuid(name.to_str().ok()?))?
}
