//! Functions by which a program controls its recording and asks about itself: `include/gpushim.h`
//! documents them.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use gpushim_trace::Occasion;

use crate::base::{boundary, settings};
use crate::hooks::entry;
use crate::record::recording::{self, By};
use crate::record::{owners, pause, usage};

/// Stops the recording of allocations.
#[unsafe(no_mangle)]
pub extern "C" fn gpushim_pause() {
    entry::serve(
        || (),
        || {
            recording::set(true, By::Program);
        },
    );
}

/// Resumes the recording of allocations.
#[unsafe(no_mangle)]
pub extern "C" fn gpushim_record() {
    entry::serve(
        || (),
        || {
            recording::set(false, By::Program);
        },
    );
}

/// True if allocations are recorded, as far as pauses decide.
#[unsafe(no_mangle)]
pub extern "C" fn gpushim_is_recording() -> c_int {
    c_int::from(!pause::is_on() && !settings::is_off())
}

/// Asks for the owner of each block in the trace, at the next instruction of the interpreter's main
/// thread.
#[unsafe(no_mangle)]
pub extern "C" fn gpushim_owners() {
    entry::serve(
        || (),
        || {
            owners::ask(Occasion::Asked);
        },
    );
}

/// Records the owner of the block at an address.
///
/// # Safety
/// The name is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpushim_owner(block: *const c_void, name: *const c_char) {
    entry::serve(
        || (),
        || {
            if !block.is_null() && !name.is_null() {
                // SAFETY: the caller promises a C string.
                let name = unsafe { CStr::from_ptr(name) };
                owners::announce(block as u64, &name.to_string_lossy());
            }
        },
    );
}

/// Writes the bytes in use of a kind of memory on a device, and their peak since
/// [`gpushim_reset_peak`]. Returns 0, or -1 for an unknown kind or device.
///
/// # Safety
/// Both pointers are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpushim_usage(
    kind: c_int,
    device: c_int,
    in_use: *mut u64,
    peak: *mut u64,
) -> c_int {
    entry::serve(
        || -1,
        || {
            let layer = usize::try_from(kind).ok().and_then(usage::layer);
            let (Some(layer), Ok(device)) = (layer, u8::try_from(device)) else {
                return -1;
            };
            let (now, highest) = usage::of(layer, device);
            for (place, bytes) in [(in_use, now), (peak, highest)] {
                if !place.is_null() {
                    // SAFETY: not null, so the caller's to be written.
                    unsafe { place.write(bytes) };
                }
            }
            0
        },
    )
}

/// Sets the peaks of [`gpushim_usage`] to the present figures.
#[unsafe(no_mangle)]
pub extern "C" fn gpushim_reset_peak() {
    entry::serve(|| (), usage::reset_peak);
}

/// Returns version, commit and build id of this library, as a text that stays valid.
#[unsafe(no_mangle)]
pub extern "C" fn gpushim_version() -> *const c_char {
    static LINE: OnceLock<CString> = OnceLock::new();
    const NONE: &CStr = c"";
    let line = || LINE.get_or_init(|| CString::new(gpushim_version::line()).unwrap_or_default());
    boundary::caught(|| NONE.as_ptr(), || line().as_ptr())
}
