//! The runtime's `cudaMalloc` and `cudaFree`, for programs with a shared cudart.
//!
//! A block that is at hand is answered here and saves cudart's own 0.1 µs. Everything else goes to the
//! cudart of the calling library, which comes back to us through the driver's door.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};

use super::caller::Interposed;
use crate::{allocator, process, thread};

/// `cudaSuccess`.
const SUCCESS: c_int = 0;
/// `cudaErrorInitializationError`, for the case that no cudart stands behind the symbol.
const NOT_INITIALIZED: c_int = 3;

static MALLOC: Interposed = Interposed::new(c"cudaMalloc");
static FREE: Interposed = Interposed::new(c"cudaFree");

/// `cudaMalloc`, with the return address as a third argument.
///
/// # Safety
/// As the runtime's function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMalloc(address: *mut *mut c_void, bytes: usize) -> c_int {
    naked_asm!(
        ".cfi_startproc",
        "mov rdx, [rsp]",
        "jmp {malloc}",
        ".cfi_endproc",
        malloc = sym malloc,
    )
}

/// `cudaFree`, with the return address as a second argument.
///
/// # Safety
/// As the runtime's function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaFree(address: *mut c_void) -> c_int {
    naked_asm!(
        ".cfi_startproc",
        "mov rsi, [rsp]",
        "jmp {free}",
        ".cfi_endproc",
        free = sym free,
    )
}

unsafe extern "C" fn malloc(
    address: *mut *mut c_void,
    bytes: usize,
    caller: *const c_void,
) -> c_int {
    if !address.is_null() && bytes != 0 && !thread::inside() {
        let hit = process::boundary(
            || None,
            || {
                let real = MALLOC.real(caller)?;
                // A cudart that changes contexts late may not have made this one current on purpose.
                if real.lazy_context {
                    return None;
                }
                allocator::allocate_at_once(bytes as u64)
            },
        );
        if let Some(block) = hit {
            // SAFETY: not null, and the caller's to be written.
            unsafe { *address = block as *mut c_void };
            return SUCCESS;
        }
    }
    type Malloc = unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int;
    match MALLOC.real(caller) {
        // SAFETY: cudart's function of this name has this signature; the caller's arguments.
        Some(real) => unsafe {
            std::mem::transmute::<*const c_void, Malloc>(real.address)(address, bytes)
        },
        None => NOT_INITIALIZED,
    }
}

unsafe extern "C" fn free(address: *mut c_void, caller: *const c_void) -> c_int {
    if !address.is_null() && !thread::inside() {
        let freed = process::boundary(|| None, || allocator::free(address as u64));
        if let Some(Ok(())) = freed {
            return SUCCESS;
        }
    }
    type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
    match FREE.real(caller) {
        // SAFETY: cudart's function of this name has this signature; the caller's argument.
        Some(real) => unsafe { std::mem::transmute::<*const c_void, Free>(real.address)(address) },
        None => NOT_INITIALIZED,
    }
}
