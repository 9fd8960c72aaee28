//! The walker for targets without one of their own: the `backtrace` crate. Slow, and may allocate.

use super::{Frames, Module};

/// Fills `frames` with the return addresses of the calling thread, from the caller of this function on;
/// how many they are.
#[inline(never)]
pub fn walk(frames: &mut Frames) -> usize {
    frames.clear();
    // The frames of the walking functions lie below this variable, the caller's above. An unwinder that does not report
    // stack pointers gives 0: then its own frames stay in.
    let here = 0u8;
    let here = std::ptr::from_ref(std::hint::black_box(&here)) as usize;
    let visit = |frame: &backtrace::Frame| {
        let own = frame.sp() as usize;
        // Below the first function of a thread some unwinders find address 0.
        let skip = (own != 0 && own <= here) || frame.ip().is_null();
        skip || frames.push(frame.ip() as u64)
    };
    // SAFETY: what has to be serialised with other users of the crate is the naming of frames, which is
    // not done here.
    unsafe { backtrace::trace_unsynchronized(visit) };
    frames.as_slice().len()
}

/// Nothing is remembered here that code which comes and goes could make wrong.
pub fn code_changed() {}

/// What objects are loaded is not known here.
pub fn module_of(_pc: u64) -> Option<Module> {
    None
}

/// What objects are loaded is not known here: never called.
pub fn on_new_module(_f: fn(&Module)) {}

/// Where functions end is not known here.
pub fn parts_of(_entry: u64) -> [std::ops::Range<u64>; 4] {
    [const { 0..0 }; 4]
}
