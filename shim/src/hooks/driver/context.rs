//! Contexts: the current one of a thread, and the end of a context with the memory in it.

use std::ffi::{c_int, c_uint, c_void};

use gpushim_alloc::Context;
use gpushim_alloc::gate;

use primary::End;

use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, Handle, NOT_PERMITTED, SUCCESS};
use crate::cuda::{attached, context, device, primary};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::passthrough::Taken;
use crate::memory::{
    capture_notices, context_drain, context_pools, device_memory, elastic, ipc_import, ledger,
    limit, owner, passthrough, peer_access, peer_work, pool_life, registry, threshold,
};
use crate::record::events;

/// True if the program still has a block from this library at an address.
fn is_held(address: u64) -> bool {
    owner::of(address).is_ours()
}

/// Removes the state of a context that was destroyed or reset with its memory.
fn ended(handle: u64, forwarded: Vec<(u64, Taken)>) {
    let ended = Context(handle);
    // Before the context is forgotten.
    let device = device::driver().known_ordinal(ended);
    context::ended(ended);
    limit::context_gone(ended);
    if let Some(device) = device.filter(|device| !device_memory::is_watched(*device)) {
        limit::no_context(device);
    }
    capture_notices::context_gone(ended);
    elastic::context_gone(ended);
    peer_access::gone(ended);
    ipc_import::context_gone(ended);
    attached::none(ended);
    let (mut allocated, held) = context_pools::context_gone(ended);
    allocated += pool_life::context_gone(ended);
    if allocated + held > 0 || !forwarded.is_empty() {
        events::context_gone(ended, device, (allocated, held), is_held);
    }
    for (address, entry) in forwarded {
        passthrough::ended(address, entry);
    }
}

/// Closes a context that is about to end. Its work is complete then: no fence covers it any more.
/// Other threads may get its addresses before the driver's call returns.
fn leaves(doomed: Context) {
    // A refusal means that its work has failed, or that the handle is no context. Without a pool
    // nothing waits for this work.
    if registry::any() && peer_access::is_known(doomed) && context_drain::context(doomed).is_ok() {
        pool_life::context_leaves(doomed);
    }
    gate::close(doomed);
    context_pools::context_leaves(doomed);
}

/// Opens a context again that did not end.
fn stays(context: Context) {
    context_pools::context_stays(context);
    gate::stays(context);
}

/// Calls the driver's destroying function, and removes this library's state of the context.
pub(super) fn destroy(handle: Handle, call: impl FnOnce() -> CUresult) -> CUresult {
    let doomed = Context(handle as u64);
    let watched = device_memory::unwatch(doomed);
    leaves(doomed);
    let forwarded = passthrough::forget_context(doomed);
    let result = call();
    context::changed();
    if result == SUCCESS {
        ended(handle as u64, forwarded);
    } else {
        stays(doomed);
        for (address, entry) in forwarded {
            passthrough::restore(address, entry);
        }
        watched
            .into_iter()
            .for_each(|device| device_memory::watch(device, doomed));
    }
    result
}

/// Ends a device's primary context as [`destroy`].
fn end_primary(device: c_int, primary: Context, call: impl FnOnce() -> CUresult) -> CUresult {
    destroy(primary.0 as Handle, || {
        let result = call();
        if result == SUCCESS {
            primary::ended(device);
        }
        result
    })
}

/// Resets a device's primary context.
fn reset(device: c_int, call: impl FnOnce() -> CUresult) -> CUresult {
    match primary::reset_means(device) {
        End::Ends(primary) => end_primary(device, primary, call),
        End::Stays | End::Unknown => switch(call),
    }
}

/// Removes one user of a device's primary context, and ends the context with the last one.
pub(super) fn release(device: c_int, call: impl FnOnce() -> CUresult) -> CUresult {
    let result = match primary::release_means(device) {
        End::Ends(primary) => end_primary(device, primary, call),
        End::Stays | End::Unknown => switch(call),
    };
    if result == SUCCESS {
        primary::released(device);
    }
    result
}

/// Calls a function after which another context may be current in this thread.
fn switch(call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    context::changed();
    result
}

/// Calls a function that makes a context, which takes device memory. From then on, its work may
/// reach the memory of every context of its device.
pub(super) fn make(
    device: c_int,
    context: *mut Handle,
    call: impl FnMut() -> CUresult,
) -> CUresult {
    if !ledger::admits() {
        return NOT_PERMITTED;
    }
    let result = passthrough::forward(Some(device), call);
    context::changed();
    if result == SUCCESS {
        // SAFETY: the driver wrote the handle.
        let made = Context(unsafe { *context } as u64);
        context::made(made);
        gate::made(made);
        peer_work::context_made(made, device);
        device_memory::made(device, made);
    }
    result
}

/// Calls a function that waits for a context's work. Pools then know the work that is complete.
fn synchronize(which: Option<Context>, call: impl FnOnce() -> CUresult) -> CUresult {
    threshold::synchronize(which, None, call)
}

driver_hooks! {
    /// Makes another context current.
    fn cuCtxSetCurrent(context: Handle) {
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        switch(|| unsafe { real::cuCtxSetCurrent(context) })
    }
    /// Makes another context current (CUDA 2 and 3).
    fn cuCtxPushCurrent(context: Handle) {
        // SAFETY: as above.
        switch(|| unsafe { real::cuCtxPushCurrent(context) })
    }
    /// Makes another context current.
    fn cuCtxPushCurrent_v2(context: Handle) {
        // SAFETY: as above.
        switch(|| unsafe { real::cuCtxPushCurrent_v2(context) })
    }
    /// Makes the context before current (CUDA 2 and 3).
    fn cuCtxPopCurrent(context: *mut Handle) {
        // SAFETY: as above.
        switch(|| unsafe { real::cuCtxPopCurrent(context) })
    }
    /// Makes the context before current.
    fn cuCtxPopCurrent_v2(context: *mut Handle) {
        // SAFETY: as above.
        switch(|| unsafe { real::cuCtxPopCurrent_v2(context) })
    }
    /// Makes a new context, which becomes current (CUDA 2 and 3).
    fn cuCtxCreate(context: *mut Handle, flags: c_uint, device: c_int) {
        // SAFETY: as above.
        make(device, context, || unsafe { real::cuCtxCreate(context, flags, device) })
    }
    /// Makes a new context, which becomes current.
    fn cuCtxCreate_v2(context: *mut Handle, flags: c_uint, device: c_int) {
        // SAFETY: as above.
        make(device, context, || unsafe { real::cuCtxCreate_v2(context, flags, device) })
    }
    /// Makes a new context with execution affinity, which becomes current.
    fn cuCtxCreate_v3(
        context: *mut Handle, affinity: *mut c_void, n: c_int, flags: c_uint, device: c_int,
    ) {
        // SAFETY: as above.
        make(device, context, || unsafe { real::cuCtxCreate_v3(context, affinity, n, flags, device) })
    }
    /// Makes a new context with parameters, which becomes current.
    fn cuCtxCreate_v4(
        context: *mut Handle, parameters: *mut c_void, flags: c_uint, device: c_int,
    ) {
        // SAFETY: as above.
        make(device, context, || unsafe { real::cuCtxCreate_v4(context, parameters, flags, device) })
    }
    /// Ends a context (CUDA 2 and 3).
    fn cuCtxDestroy(context: Handle) {
        // SAFETY: as above.
        destroy(context, || unsafe { real::cuCtxDestroy(context) })
    }
    /// Ends a context and the memory in it.
    fn cuCtxDestroy_v2(context: Handle) {
        // SAFETY: as above.
        destroy(context, || unsafe { real::cuCtxDestroy_v2(context) })
    }
    /// Adds a user of a context.
    fn cuCtxAttach(context: *mut Handle, flags: c_uint) {
        // SAFETY: as above.
        let result = unsafe { real::cuCtxAttach(context, flags) };
        if result == SUCCESS && !context.is_null() {
            // SAFETY: the driver wrote the handle.
            attached::more(Context(unsafe { *context } as u64));
        }
        result
    }
    /// Removes a user of a context; the last one ends it.
    fn cuCtxDetach(context: Handle) {
        // SAFETY: as above.
        let call = || unsafe { real::cuCtxDetach(context) };
        let which = Context(context as u64);
        if !attached::any(which) {
            return destroy(context, call);
        }
        let result = switch(call);
        if result == SUCCESS {
            attached::fewer(which);
        }
        result
    }
    /// Adds a user of a device's primary context.
    fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) {
        // SAFETY: as above.
        let result = make(device, context, || unsafe { real::cuDevicePrimaryCtxRetain(context, device) });
        if result == SUCCESS {
            // SAFETY: the driver wrote the handle.
            primary::retained(device, Context(unsafe { *context } as u64));
        }
        result
    }
    /// Removes a user of a device's primary context (CUDA 7 to 10).
    fn cuDevicePrimaryCtxRelease(device: c_int) {
        // SAFETY: as above.
        release(device, || unsafe { real::cuDevicePrimaryCtxRelease(device) })
    }
    /// Removes a user of a device's primary context.
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        // SAFETY: as above.
        release(device, || unsafe { real::cuDevicePrimaryCtxRelease_v2(device) })
    }
    /// Resets a device's primary context (CUDA 7 to 10).
    fn cuDevicePrimaryCtxReset(device: c_int) {
        // SAFETY: as above.
        reset(device, || unsafe { real::cuDevicePrimaryCtxReset(device) })
    }
    /// Resets a device's primary context.
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
    /// Lets the current context use another context's memory.
    fn cuCtxEnablePeerAccess(peer: Handle, flags: c_uint) {
        // SAFETY: as above.
        let result = unsafe { real::cuCtxEnablePeerAccess(peer, flags) };
        if result == SUCCESS
            && let Some(accessor) = context::current() {
                let owner = Context(peer as u64);
                let follow = || elastic::peer(accessor, owner, true);
                if let Err(error) = peer_work::peer(accessor, owner, true).and_then(|()| follow()) {
                    // SAFETY: undoes the call above.
                    let _ = unsafe { real::cuCtxDisablePeerAccess(peer) };
                    return error;
                }
            }
        result
    }
    /// Forbids the current context to use another context's memory.
    fn cuCtxDisablePeerAccess(peer: Handle) {
        // SAFETY: as above.
        let result = unsafe { real::cuCtxDisablePeerAccess(peer) };
        if result == SUCCESS
            && let Some(accessor) = context::current() {
                let _ = peer_work::peer(accessor, Context(peer as u64), false);
                let _ = elastic::peer(accessor, Context(peer as u64), false);
            }
        result
    }
}
