//! Variables of a running frame before 3.13, read from the interpreter's own frames.
//!
//! A read of `f_locals` would make a dictionary that keeps the values alive as long as the frame.

use std::ffi::c_void;
use std::ptr;

use super::MethodDef;
use super::api::{Api, Object, TYPE, WITH_ARGUMENTS, word};

/// `f_frame` of a frame object, 3.11 and 3.12 (Include/internal/pycore_frame.h).
const INNER: usize = 24;
/// `localsplus` of an interpreter frame, 3.11 and 3.12.
const VARIABLES: usize = 72;
/// `tp_basicsize` of a type: up to 3.10 the variables begin at the last word of a frame object's
/// fixed part.
const BASIC_SIZE: usize = 32;
/// Largest number of variables of one frame.
const MOST: i64 = 1 << 16;

pub static METHOD: MethodDef = MethodDef {
    name: c"slots".as_ptr(),
    function: slots,
    flags: WITH_ARGUMENTS,
    about: ptr::null(),
};

/// The method `slots(frame, count, unset)`. It returns a tuple of the first variables, with `unset`
/// for each without a value.
///
/// # Safety
/// Called by the interpreter, with a tuple.
unsafe extern "C" fn slots(_: *mut c_void, arguments: *mut c_void) -> *mut c_void {
    let Some(api) = Api::shared() else {
        return ptr::null_mut();
    };
    // SAFETY: the interpreter calls with the GIL; `entry` gives a frame object, a number and an
    // object.
    unsafe {
        let [frame, count, unset] = [0, 1, 2].map(|place| (api.tuple_get)(arguments, place));
        if frame.is_null() || count.is_null() || unset.is_null() {
            return ptr::null_mut();
        }
        let count = (api.as_long)(count).clamp(0, MOST) as usize;
        let variables = variables(api, frame);
        let taken: Vec<Object> = (0..count)
            .map(|place| {
                let value = match variables.is_null() {
                    true => variables.cast_mut().cast(),
                    false => *variables.add(place),
                };
                api.more(if value.is_null() { unset } else { value })
            })
            .collect();
        api.tuple(&taken)
    }
}

/// Returns the address of a frame object's first variable.
unsafe fn variables(api: &Api, frame: Object) -> *const Object {
    // SAFETY: a frame object is alive, and has these words.
    unsafe {
        if api.has_inner_frames {
            return word(frame, INNER).wrapping_byte_add(VARIABLES).cast();
        }
        let size = word(word(frame, TYPE), BASIC_SIZE) as usize;
        frame.wrapping_byte_add(size.wrapping_sub(8)).cast()
    }
}
