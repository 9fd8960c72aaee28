//! The runtime's allocating and freeing functions, for programs with a shared cudart.
//!
//! A request that a cached block can serve is answered here, which saves cudart's own 0.1 µs. A
//! request for an elastic segment of PyTorch's is answered here, because only here the calling
//! library is known. All other requests go to the cudart of the calling library, which calls the
//! driver hooks.

use std::ffi::{CStr, c_int, c_void};

use crate::base::thread;
use crate::cuda::streams::named;
use crate::cuda::types::{Handle, SUCCESS};
use crate::hooks::caller::{Interposed, Real};
use crate::hooks::door::{c_name, door};
use crate::hooks::entry;
use crate::memory::{cuda_malloc, elastic, stream_ordered};

/// CUDA's `cudaErrorStubLibrary`, returned if no cudart is found behind the symbol: a program
/// without one may reach these functions by a weak reference.
const STUB_LIBRARY: c_int = 34;

/// Defines functions of the runtime, each behind a [`door`]. If the body answers `true`, the call
/// is complete. Otherwise cudart serves it.
macro_rules! runtime_functions {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident: $type:ty),*), $inner:ident, $register:tt, |$real:ident, $place:ident| $body:expr;
    )*) => { $(
        door! {
            $(#[$doc])*
            fn $name($($arg: $type),*) => $inner, $register
        }

        unsafe extern "C" fn $inner($($arg: $type,)* caller: *const c_void) -> c_int {
            static REAL: Interposed = Interposed::new(c_name!($name));
            let is_done = !thread::inside()
                && entry::serve(|| false, || {
                    let ($real, $place) = (|| REAL.real(caller), caller);
                    $body
                });
            if is_done {
                return SUCCESS as c_int;
            }
            type Function = unsafe extern "C" fn($($type),*) -> c_int;
            match REAL.real(caller) {
                // SAFETY: cudart's function of this name has this signature; the caller's
                // arguments.
                Some(real) => unsafe {
                    std::mem::transmute::<*const c_void, Function>(real.address)($($arg),*)
                },
                None => STUB_LIBRARY,
            }
        }
    )*
        /// Returns the functions here, by their exported names.
        pub fn exports() -> impl Iterator<Item = (&'static CStr, *const c_void)> {
            [$((c_name!($name), $name as *const c_void)),*].into_iter()
        }
    };
}

runtime_functions! {
    /// Allocates device memory: a segment or a cached block.
    fn cudaMalloc(address: *mut *mut c_void, bytes: usize), malloc, "rdx", |real, caller| {
        let bytes = bytes as u64;
        let segment = || elastic::is_on().then(|| elastic::segment(bytes, caller))?;
        answers(real, address, || segment().or_else(|| cuda_malloc::allocate_at_once(bytes)))
    };
    /// Frees device memory of a pool or a segment.
    fn cudaFree(address: *mut c_void), free, "rsi", |_real, _caller| {
        !address.is_null() && cuda_malloc::free(address as u64, true) == Some(SUCCESS)
    };
    /// Allocates from the device's current pool.
    fn cudaMallocAsync(address: *mut *mut c_void, bytes: usize, stream: Handle), malloc_async, "rcx", |real, _caller| {
        answers(real, address, || {
            stream_ordered::allocate_at_once(bytes, named(stream, false), None)
        })
    };
    /// Allocates from the device's current pool, per-thread default stream.
    fn cudaMallocAsync_ptsz(address: *mut *mut c_void, bytes: usize, stream: Handle), malloc_async_ptsz, "rcx", |real, _caller| {
        answers(real, address, || {
            stream_ordered::allocate_at_once(bytes, named(stream, true), None)
        })
    };
    /// Allocates from a pool, in the order of a stream.
    fn cudaMallocFromPoolAsync(
        address: *mut *mut c_void, bytes: usize, pool: Handle, stream: Handle
    ), malloc_from_pool, "r8", |real, _caller| {
        answers(real, address, || {
            stream_ordered::allocate_at_once(bytes, named(stream, false), Some(pool as u64))
        })
    };
    /// Allocates from a pool, per-thread default stream.
    fn cudaMallocFromPoolAsync_ptsz(
        address: *mut *mut c_void, bytes: usize, pool: Handle, stream: Handle
    ), malloc_from_pool_ptsz, "r8", |real, _caller| {
        answers(real, address, || {
            stream_ordered::allocate_at_once(bytes, named(stream, true), Some(pool as u64))
        })
    };
    /// Frees memory into its pool, in the order of a stream.
    fn cudaFreeAsync(address: *mut c_void, stream: Handle), free_async, "rdx", |_real, _caller| {
        stream_ordered::free_on(address as u64, named(stream, false)) == Some(SUCCESS)
    };
    /// Frees memory into its pool, in the order of a stream, per-thread default stream.
    fn cudaFreeAsync_ptsz(address: *mut c_void, stream: Handle), free_async_ptsz, "rdx", |_real, _caller| {
        stream_ordered::free_on(address as u64, named(stream, true)) == Some(SUCCESS)
    };
}

/// Writes the address of a cached block for the caller. False if there is none.
#[inline(always)]
fn answers(
    real: impl FnOnce() -> Option<Real>,
    address: *mut *mut c_void,
    block: impl FnOnce() -> Option<u64>,
) -> bool {
    // With a cudart that makes contexts current lazily, the current context may not be the intended
    // one.
    if address.is_null() || real().is_none_or(|real| real.lazy_context) {
        return false;
    }
    let block = block();
    if let Some(block) = block {
        // SAFETY: not null, and the caller's to be written.
        unsafe { *address = block as *mut c_void };
    }
    block.is_some()
}
