//! The real driver: where it is, and which of its functions stand behind our hooks.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::hooks::hook::Hook;
use crate::hooks::{driver, loader};

/// The driver API's result type; 0 is success. A plain integer: hosts may meet newer codes.
pub type CUresult = u32;
/// `CUDA_SUCCESS`.
pub const SUCCESS: CUresult = 0;
/// `CUDA_ERROR_INVALID_VALUE`.
pub const INVALID_VALUE: CUresult = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: CUresult = 2;
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub const INVALID_CONTEXT: CUresult = 201;
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
pub const CONTEXT_IS_DESTROYED: CUresult = 709;
/// `CUDA_ERROR_STUB_LIBRARY`: what the driver library of CUDA's toolkit says, behind which is no driver.
const STUB_LIBRARY: CUresult = 34;
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
pub const CAPTURE_UNSUPPORTED: CUresult = 900;
/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`.
pub const CAPTURE_INVALIDATED: CUresult = 901;
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`.
pub const CAPTURE_IMPLICIT: CUresult = 906;
/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
pub const PEER_ACCESS_ALREADY_ENABLED: CUresult = 704;
/// `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`.
pub const PEER_ACCESS_NOT_ENABLED: CUresult = 705;
/// `CUDA_ERROR_NOT_FOUND`.
pub const NOT_FOUND: CUresult = 500;

static RESOLVED: AtomicBool = AtomicBool::new(false);

/// Every hook, family by family.
pub fn hooks() -> impl Iterator<Item = &'static Hook> {
    driver::FAMILIES.iter().flat_map(|f| f.iter().copied())
}

/// Every driver function that we only call.
fn calls() -> impl Iterator<Item = &'static Hook> {
    driver::CALLS.iter().flat_map(|f| f.iter().copied())
}

/// Looks the real functions up if the driver is in the process. Cheap once it was found.
pub fn resolve() -> bool {
    if RESOLVED.load(Ordering::Acquire) {
        return true;
    }
    static RESOLVE: Once = Once::new();
    let Some(library) = loader::loaded(c"libcuda.so.1") else {
        return false;
    };
    RESOLVE.call_once(|| {
        for hook in hooks().chain(calls()) {
            hook.set_real(loader::symbol(library, hook.name));
        }
        RESOLVED.store(true, Ordering::Release);
    });
    true
}

/// The driver's function behind a hook. A program linked against libcuda may reach an exported hook
/// before anything was looked up.
#[inline]
pub fn address(hook: &Hook) -> Option<NonNull<c_void>> {
    NonNull::new(hook.real()).or_else(|| {
        resolve();
        NonNull::new(hook.real())
    })
}

/// The error of a function that the driver does not have, or that is called without a driver.
#[cold]
pub fn absent() -> CUresult {
    if resolve() { NOT_FOUND } else { STUB_LIBRARY }
}

/// Our function for a pointer of the driver's; null if we do not stand in for it.
pub fn substitute(real: *mut c_void) -> *const c_void {
    if real.is_null() || !resolve() {
        return std::ptr::null();
    }
    hooks()
        .find(|hook| hook.real() == real)
        .map_or(std::ptr::null(), |hook| hook.ours)
}

/// Our function of a name; null if it is none of ours.
pub fn hook(name: &CStr) -> *const c_void {
    hooks()
        .find(|hook| hook.name == name)
        .map_or(std::ptr::null(), |hook| hook.ours)
}
