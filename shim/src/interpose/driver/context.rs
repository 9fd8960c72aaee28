//! Contexts: which one is current, and when one ends with the memory in it.

use std::ffi::{c_int, c_uint, c_void};

use gpushim_core::pool::Context;

use super::Handle;
use super::calls::real as calls;
use crate::driver::{CUresult, SUCCESS};
use crate::interpose::hook::driver_hooks;
use crate::{allocator, capture, context, device_memory, mempools, paged, recorder};

/// A context was destroyed or reset: its memory went with it.
fn ended(handle: u64) {
    let ended = Context(handle);
    context::gone();
    capture::context_gone(ended);
    paged::context_gone(ended);
    let (of_pages, trimmed) = mempools::context_gone(ended);
    if let Some(pool) = allocator::used() {
        let (allocated, reserved) = pool.context_gone(ended);
        pool.device().forget(ended);
        recorder::context_gone(ended, allocated, reserved);
    } else if of_pages > 0 {
        recorder::context_gone(ended, of_pages, trimmed);
    }
}

/// Calls the driver's destroying function and drops what we had in the context.
fn destroy(handle: Handle, call: impl FnOnce() -> CUresult) -> CUresult {
    let doomed = Context(handle as u64);
    let watched = device_memory::unwatch(doomed);
    let result = call();
    context::changed();
    if result == SUCCESS {
        ended(handle as u64);
    } else if let Some(device) = watched {
        device_memory::watch(device, doomed);
    }
    result
}

/// As [`destroy`], for a device's primary context, with which its pools' blocks end.
fn reset(device: c_int, call: impl FnOnce() -> CUresult) -> CUresult {
    let primary = context::primary(device);
    if let Some(primary) = primary.filter(|_| mempools::any()) {
        // Our pages are not the context's: they must go, and not under its work.
        // SAFETY: no arguments; the context is current inside.
        let _ = context::with(primary, || unsafe { real::cuCtxSynchronize() });
        pages_gone(primary, device);
    }
    let watched = primary.and_then(device_memory::unwatch);
    let result = call();
    context::changed();
    if result == SUCCESS
        && let Some(primary) = primary
    {
        ended(primary.0);
    } else if let Some(primary) = primary.filter(|_| watched.is_some()) {
        device_memory::watch(device, primary);
    }
    result
}

/// What the pools of a device held is given back, whoever had it.
fn pages_gone(primary: Context, device: c_int) {
    let (allocated, reserved) = mempools::device_gone(device);
    if allocated + reserved > 0 {
        recorder::context_gone(primary, allocated, reserved);
    }
}

/// As [`reset`], if this was the last user of the primary context.
fn release(device: c_int, call: impl FnOnce() -> CUresult) -> CUresult {
    let known = context::primary(device);
    let watched = known.and_then(device_memory::unwatch);
    let result = call();
    context::changed();
    if result == SUCCESS {
        let (mut flags, mut active) = (0, 1);
        // SAFETY: both are ours to write.
        let asked = unsafe { calls::cuDevicePrimaryCtxGetState(device, &mut flags, &mut active) };
        if asked == SUCCESS
            && active == 0
            && let Some(primary) = context::primary(device)
        {
            pages_gone(primary, device);
            ended(primary.0);
            return result;
        }
    }
    if let Some(known) = known.filter(|_| watched.is_some()) {
        device_memory::watch(device, known);
    }
    result
}

/// Calls a function after which another context may be current in this thread.
fn switch(call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    context::changed();
    result
}

/// Calls a function that makes a context, which takes device memory. From here on its work may reach
/// the memory of every context of its device.
fn make(device: c_int, context: *mut Handle, call: impl FnMut() -> CUresult) -> CUresult {
    let result = allocator::forward_unsized(call);
    context::changed();
    if result == SUCCESS {
        // SAFETY: the driver wrote the handle.
        let made = Context(unsafe { *context } as u64);
        paged::context_made(made);
        device_memory::watch(device, made);
        if let Some(pool) = allocator::pool() {
            pool.context_known(made);
        }
    }
    result
}

/// Calls a function that waits for a context's work, and tells the pool what is finished by then.
fn synchronize(which: Option<Context>, call: impl FnOnce() -> CUresult) -> CUresult {
    mempools::synchronize(which, None, || {
        let Some((pool, context)) = allocator::used().zip(which) else {
            return call();
        };
        let mark = pool.mark(context);
        let result = call();
        if result == SUCCESS {
            pool.synchronized(context, mark);
        }
        result
    })
}

driver_hooks! {
    /// Another context becomes current.
    fn cuCtxSetCurrent(context: Handle) {
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        switch(|| unsafe { real::cuCtxSetCurrent(context) })
    }
    /// Another context becomes current (CUDA 2 and 3).
    fn cuCtxPushCurrent(context: Handle) {
        // SAFETY: as above.
        switch(|| unsafe { real::cuCtxPushCurrent(context) })
    }
    /// Another context becomes current.
    fn cuCtxPushCurrent_v2(context: Handle) {
        // SAFETY: as above.
        switch(|| unsafe { real::cuCtxPushCurrent_v2(context) })
    }
    /// The context before becomes current (CUDA 2 and 3).
    fn cuCtxPopCurrent(context: *mut Handle) {
        // SAFETY: as above.
        switch(|| unsafe { real::cuCtxPopCurrent(context) })
    }
    /// The context before becomes current.
    fn cuCtxPopCurrent_v2(context: *mut Handle) {
        // SAFETY: as above.
        switch(|| unsafe { real::cuCtxPopCurrent_v2(context) })
    }
    /// A new context becomes current (CUDA 2 and 3).
    fn cuCtxCreate(context: *mut Handle, flags: c_uint, device: c_int) {
        // SAFETY: as above.
        make(device, context, || unsafe { real::cuCtxCreate(context, flags, device) })
    }
    /// A new context becomes current.
    fn cuCtxCreate_v2(context: *mut Handle, flags: c_uint, device: c_int) {
        // SAFETY: as above.
        make(device, context, || unsafe { real::cuCtxCreate_v2(context, flags, device) })
    }
    /// A new context with execution affinity becomes current.
    fn cuCtxCreate_v3(
        context: *mut Handle, affinity: *mut c_void, n: c_int, flags: c_uint, device: c_int,
    ) {
        // SAFETY: as above.
        make(device, context, || unsafe { real::cuCtxCreate_v3(context, affinity, n, flags, device) })
    }
    /// A new context with parameters becomes current.
    fn cuCtxCreate_v4(
        context: *mut Handle, parameters: *mut c_void, flags: c_uint, device: c_int,
    ) {
        // SAFETY: as above.
        make(device, context, || unsafe { real::cuCtxCreate_v4(context, parameters, flags, device) })
    }
    /// A context ends (CUDA 2 and 3).
    fn cuCtxDestroy(context: Handle) {
        // SAFETY: as above.
        destroy(context, || unsafe { real::cuCtxDestroy(context) })
    }
    /// A context ends.
    fn cuCtxDestroy_v2(context: Handle) {
        // SAFETY: as above.
        destroy(context, || unsafe { real::cuCtxDestroy_v2(context) })
    }
    /// One user fewer of a context; the last one ends it.
    fn cuCtxDetach(context: Handle) {
        // SAFETY: as above.
        destroy(context, || unsafe { real::cuCtxDetach(context) })
    }
    /// One user more of a device's primary context.
    fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) {
        // SAFETY: as above.
        let result = make(device, context, || unsafe { real::cuDevicePrimaryCtxRetain(context, device) });
        if result == SUCCESS {
            // SAFETY: the driver wrote the handle.
            context::note_primary(device, unsafe { *context } as u64);
        }
        result
    }
    /// One user fewer of a device's primary context (CUDA 7 to 10).
    fn cuDevicePrimaryCtxRelease(device: c_int) {
        // SAFETY: as above.
        release(device, || unsafe { real::cuDevicePrimaryCtxRelease(device) })
    }
    /// One user fewer of a device's primary context.
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        // SAFETY: as above.
        release(device, || unsafe { real::cuDevicePrimaryCtxRelease_v2(device) })
    }
    /// Everything in a device's primary context ends (CUDA 7 to 10).
    fn cuDevicePrimaryCtxReset(device: c_int) {
        // SAFETY: as above.
        reset(device, || unsafe { real::cuDevicePrimaryCtxReset(device) })
    }
    /// Everything in a device's primary context ends.
    fn cuDevicePrimaryCtxReset_v2(device: c_int) {
        // SAFETY: as above.
        reset(device, || unsafe { real::cuDevicePrimaryCtxReset_v2(device) })
    }
    /// Waits for all work of the current context.
    fn cuCtxSynchronize() {
        // SAFETY: as above.
        synchronize(context::current(), || unsafe { real::cuCtxSynchronize() })
    }
    /// Waits for all work of a context.
    fn cuCtxSynchronize_v2(context: Handle) {
        let which = if context.is_null() {
            context::current()
        } else {
            Some(Context(context as u64))
        };
        // SAFETY: as above.
        synchronize(which, || unsafe { real::cuCtxSynchronize_v2(context) })
    }
    /// The current context may use another's memory from here on.
    fn cuCtxEnablePeerAccess(peer: Handle, flags: c_uint) {
        // SAFETY: as above.
        let result = unsafe { real::cuCtxEnablePeerAccess(peer, flags) };
        if result == SUCCESS
            && let Some(accessor) = context::current() {
                if let Some(pool) = allocator::pool() {
                    pool.peer_enabled(accessor, Context(peer as u64));
                }
                paged::peer(accessor, Context(peer as u64), true);
            }
        result
    }
    /// The current context may no longer use another's memory.
    fn cuCtxDisablePeerAccess(peer: Handle) {
        // SAFETY: as above.
        let result = unsafe { real::cuCtxDisablePeerAccess(peer) };
        if result == SUCCESS
            && let Some(accessor) = context::current() {
                if let Some(pool) = allocator::pool() {
                    pool.peer_disabled(accessor, Context(peer as u64));
                }
                paged::peer(accessor, Context(peer as u64), false);
            }
        result
    }
}
