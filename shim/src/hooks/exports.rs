//! Functions of this library for library authors: `include/gpushim.h` documents them.
//!
//! The functions for memory do in this process the same as `cuMemAllocAsync` and `cuMemFreeAsync`,
//! with the device as an argument. They have the signatures that PyTorch's CUDAPluggableAllocator
//! calls.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Once;

use gpushim_config::Log;

use crate::base::{boundary, preloaded, settings, stderr, thread};
use crate::cuda::functions::real;
use crate::cuda::streams::named;
use crate::cuda::types::{CUresult, DevicePtr, Handle, OUT_OF_MEMORY, SUCCESS};
use crate::cuda::{context, primary};
use crate::hooks::driver::context::cuDevicePrimaryCtxRetain;
use crate::hooks::driver::stream_ordered;
use crate::hooks::{entry, nvtx};
use crate::memory::passthrough;
use crate::record::ranges::{self, Text};
use crate::record::trace;

/// The driver's `CUDA_ERROR_DEINITIALIZED`: the process is ending, and its memory with it.
const DEINITIALIZED: CUresult = 4;

/// Allocates `size` bytes on a device, for work on a stream. Null if there are none, or none were
/// asked for.
///
/// # Safety
/// `stream` is a live stream of that device, or 0, 1 or 2 for a default stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpushim_malloc(size: isize, device: c_int, stream: Handle) -> *mut c_void {
    let bytes = usize::try_from(size).unwrap_or(0);
    if bytes == 0 {
        return std::ptr::null_mut();
    }
    let address = Cell::new(0);
    let result = entry::serve(
        || {
            // SAFETY: the address is ours to write; the stream is the caller's.
            on_device(device, || unsafe {
                real::cuMemAllocAsync(address.as_ptr(), bytes, stream)
            })
        },
        || on_device(device, || allocate(address.as_ptr(), bytes, stream)),
    );
    match result {
        SUCCESS => address.get() as *mut c_void,
        OUT_OF_MEMORY => std::ptr::null_mut(),
        error => {
            complain("gpushim_malloc", error);
            std::ptr::null_mut()
        }
    }
}

/// Frees memory of [`gpushim_malloc`], once the work submitted to the stream before is complete.
///
/// # Safety
/// `address` is null or came from [`gpushim_malloc`] and was not freed; `stream` as there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpushim_free(
    address: *mut c_void,
    _size: isize,
    device: c_int,
    stream: Handle,
) {
    if address.is_null() {
        return;
    }
    let address = address as DevicePtr;
    let result = entry::serve(
        // SAFETY: the caller's arguments, unchanged.
        || on_device(device, || unsafe { real::cuMemFreeAsync(address, stream) }),
        || on_device(device, || free(address, stream)),
    );
    if result != SUCCESS && result != DEINITIALIZED {
        complain("gpushim_free", result);
    }
}

/// Begins a range of this name on the calling thread.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpushim_range_push(name: *const c_char) {
    // SAFETY: the caller's argument.
    announce(|| ranges::push(None, &unsafe { text(name) }));
}

/// Ends the innermost range that [`gpushim_range_push`] began on the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn gpushim_range_pop() {
    announce(|| ranges::pop(None));
}

/// Records a mark of this name.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpushim_mark(name: *const c_char) {
    // SAFETY: the caller's argument.
    announce(|| ranges::mark(None, &unsafe { text(name) }));
}

fn announce<R>(what: impl FnOnce() -> R) {
    if nvtx::is_wanted() {
        entry::serve(|| (), || drop(what()));
    }
}

/// # Safety
/// `name` is null or a C string that outlives the text.
unsafe fn text<'a>(name: *const c_char) -> Text<'a> {
    if name.is_null() {
        return Text::None;
    }
    // SAFETY: not null, so a C string.
    Text::Plain(unsafe { CStr::from_ptr(name) }.to_string_lossy())
}

fn allocate(address: *mut DevicePtr, bytes: usize, stream: Handle) -> CUresult {
    if preloaded::is_ours() {
        // SAFETY: the address is ours to write; the stream is the caller's.
        return unsafe { stream_ordered::cuMemAllocAsync(address, bytes, stream) };
    }
    tell_that_we_are_blind();
    // SAFETY: as above.
    stream_ordered::forward(address, bytes, None, named(stream, false), || unsafe {
        real::cuMemAllocAsync(address, bytes, stream)
    })
}

fn free(address: DevicePtr, stream: Handle) -> CUresult {
    if preloaded::is_ours() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { stream_ordered::cuMemFreeAsync(address, stream) };
    }
    // SAFETY: as above.
    passthrough::free(address, named(stream, false), || unsafe {
        real::cuMemFreeAsync(address, stream)
    })
}

/// Calls with a context of the device current: the present one if it fits, or else the device's
/// primary context.
fn on_device(device: c_int, call: impl FnOnce() -> CUresult) -> CUresult {
    if !preloaded::is_ours() || boundary::bypassed() {
        // No hook reports when the current context changes.
        context::changed();
    }
    if context::current().is_some() && thread::with(|t| c_int::from(t.device.get())) == device {
        return call();
    }
    let primary = match primary(device) {
        Ok(primary) => primary,
        Err(error) => return error,
    };
    // Not by `context::with`: the call below would be taken for a call by the driver.
    // SAFETY: the handle is a live context's.
    let pushed = unsafe { real::cuCtxPushCurrent_v2(primary) };
    if pushed != SUCCESS {
        return pushed;
    }
    context::changed();
    let result = call();
    let mut popped = std::ptr::null_mut();
    // SAFETY: `popped` is ours to write; this undoes the push above.
    unsafe { real::cuCtxPopCurrent_v2(&mut popped) };
    context::changed();
    result
}

/// Returns the primary context of a device. If this call has to retain it, it is never released:
/// memory is in it.
fn primary(device: c_int) -> Result<Handle, CUresult> {
    if let Some(known) = primary::of(device) {
        return Ok(known.0 as Handle);
    }
    let mut context = std::ptr::null_mut();
    // SAFETY: `context` is ours to write.
    match unsafe { cuDevicePrimaryCtxRetain(&mut context, device) } {
        SUCCESS => Ok(context),
        error => Err(error),
    }
}

/// Reports once that the driver's own pools serve. Without hooks, no end of a stream and no capture
/// is seen, and a pool could not reuse memory safely.
fn tell_that_we_are_blind() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        boundary::prepare();
        trace::fact(
            "exports",
            "the driver's own pools: the library is not preloaded",
        );
        say(
            "libgpushim.so was loaded after the start, so gpushim_malloc takes memory from the driver's own pools; \
             preload it (LD_PRELOAD) for ours",
        );
    });
}

/// Reports an error that the function's signature cannot return. Only the first one is reported.
fn complain(function: &str, error: CUresult) {
    static COMPLAINED: Once = Once::new();
    COMPLAINED.call_once(|| say(&format!("{function} failed: CUDA error {error}")));
}

fn say(line: &str) {
    if settings::config().log >= Log::Warn {
        stderr::say(line);
    }
}
