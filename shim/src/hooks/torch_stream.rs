//! The stream for which PyTorch makes a tensor: the calling thread's current one, which its
//! allocator passes on.
//!
//! Both functions are exported by libc10_cuda.so. They read only data of the thread and tables that
//! do not change any more. PyTorch calls them for each tensor before it takes the lock under which
//! it announces the tensor. A program may name another stream to the allocator
//! (`raw_alloc_with_stream`): the trace then has its thread's current one.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use gpushim_torch::stream::{CURRENT, Current, HANDLE, Handle};

use crate::base::linker;
use crate::cuda::captures;
use crate::record::tensor_streams;

/// The two functions; null until they are found.
static FOUND: [AtomicPtr<c_void>; 2] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];
/// Number of searches that did not find them.
static MISSES: AtomicU32 = AtomicU32::new(0);
/// Most such searches: a process has few call sites of PyTorch.
const MOST_MISSES: u32 = 16;

/// Returns the number of the stream for which this thread makes a tensor on a device, for a call
/// from this address; 0 if PyTorch does not say.
#[inline]
pub fn of_new_tensor(device: i8, caller: *const c_void) -> u8 {
    // With a negative device, PyTorch would ask the runtime for the current one.
    let (Some((current, handle)), 0..) = (functions(caller), device) else {
        return tensor_streams::UNKNOWN;
    };
    // SAFETY: the function has this signature since PyTorch 1.13; it throws only for a device that
    // does not exist.
    let stream = unsafe { current(device) };
    let handle = match stream.id {
        0 => 0,
        // SAFETY: as above; the stream came from PyTorch and outlives the call.
        _ => unsafe { handle(&stream) },
    };
    match handle {
        // This handle means another stream in each thread.
        captures::PER_THREAD => tensor_streams::UNKNOWN,
        handle => tensor_streams::number(handle),
    }
}

#[inline]
fn functions(caller: *const c_void) -> Option<(Current, Handle)> {
    let [current, handle] = FOUND.each_ref().map(|found| found.load(Ordering::Acquire));
    if !current.is_null() && !handle.is_null() {
        // SAFETY: these are the addresses of functions of these signatures, and not null.
        return Some(unsafe {
            (
                std::mem::transmute::<*mut c_void, Current>(current),
                std::mem::transmute::<*mut c_void, Handle>(handle),
            )
        });
    }
    if MISSES.load(Ordering::Relaxed) >= MOST_MISSES {
        return None;
    }
    find(caller)
}

/// Looks for them in the calling library and in its dependencies.
#[cold]
fn find(caller: *const c_void) -> Option<(Current, Handle)> {
    let of_library = linker::handle_of(caller)
        .map(|library| [CURRENT, HANDLE].map(|name| linker::symbol(library, name)))
        .filter(|found| found.iter().all(|address| !address.is_null()));
    let Some(addresses) = of_library else {
        MISSES.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    for (found, address) in FOUND.iter().zip(addresses) {
        found.store(address, Ordering::Release);
    }
    functions(caller)
}
