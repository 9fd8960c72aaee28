//! Green contexts: they end without the memory that was allocated in them.

use std::ffi::{c_int, c_uint, c_void};

use gpushim_alloc::Context;
use gpushim_alloc::gate;

use crate::base::thread;
use crate::cuda::functions::real;
use crate::cuda::green::{self, Green};
use crate::cuda::types::{CUresult, Handle, SUCCESS, check};
use crate::cuda::{context, primary};
use crate::hooks::driver::context::{destroy, make, release};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::{passthrough, peer_work};

/// Registers a green context that was just made. The driver retains the device's primary context
/// for it. This library's table counts that use, too, and so shows the primary context as alive.
///
/// # Errors
/// The driver's. Without this entry, the context would hold a pool's memory for ever.
fn take_in(handle: Handle, device: c_int) -> Result<(), CUresult> {
    let (mut own, mut whole) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: `own` is ours to write.
    check(thread::call(|| unsafe {
        real::cuCtxFromGreenCtx(&mut own, handle)
    }))?;
    let mut retain = || {
        // SAFETY: `whole` is ours to write.
        thread::call(|| unsafe { real::cuDevicePrimaryCtxRetain(&mut whole, device) })
    };
    check(retain())?;
    // The context is retained already: this only notes it.
    make(device, &mut whole, || SUCCESS);
    let (context, primary) = (Context(own as u64), Context(whole as u64));
    primary::retained(device, primary);
    green::made(Green {
        handle: handle as u64,
        context,
        primary,
        device,
    });
    context::made(context);
    gate::made(context);
    peer_work::context_made(context, device);
    Ok(())
}

driver_hooks! {
    /// Makes a green context, which takes device memory.
    fn cuGreenCtxCreate(green: *mut Handle, processors: *mut c_void, device: c_int, flags: c_uint) {
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        let result = passthrough::forward(None, || unsafe {
            real::cuGreenCtxCreate(green, processors, device, flags)
        });
        if result == SUCCESS && !green.is_null() {
            // SAFETY: the driver wrote the handle.
            let made = unsafe { *green };
            if let Err(error) = take_in(made, device) {
                // SAFETY: nobody has seen the context yet.
                thread::call(|| unsafe { real::cuGreenCtxDestroy(made) });
                // SAFETY: not null, and the caller's to be written.
                unsafe { *green = std::ptr::null_mut() };
                return error;
            }
        }
        result
    }
    /// Ends a green context, with its streams and events.
    fn cuGreenCtxDestroy(green: Handle) {
        // SAFETY: as above.
        let call = || unsafe { real::cuGreenCtxDestroy(green) };
        let Some(known) = green::known(green as u64) else {
            return call();
        };
        let result = destroy(known.context.0 as Handle, call);
        if result == SUCCESS {
            green::gone(known.handle);
            // SAFETY: undoes the retain of `take_in`.
            let _ = release(known.device, || unsafe {
                real::cuDevicePrimaryCtxRelease_v2(known.device)
            });
        }
        result
    }
    /// Makes a stream of a green context, which takes device memory.
    fn cuGreenCtxStreamCreate(
        stream: *mut Handle, green: Handle, flags: c_uint, priority: c_int,
    ) {
        // SAFETY: as above.
        passthrough::forward(None, || unsafe {
            real::cuGreenCtxStreamCreate(stream, green, flags, priority)
        })
    }
}
