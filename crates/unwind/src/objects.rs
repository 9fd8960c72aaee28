//! The objects that the dynamic linker has loaded.

use std::ffi::{c_int, c_void};

use libc::dl_phdr_info;

/// Shows each loaded object, in search order and under the dynamic linker's lock, until `visit`
/// returns true.
pub fn each_object<F: FnMut(&dl_phdr_info) -> bool>(mut visit: F) {
    unsafe extern "C" fn one<F: FnMut(&dl_phdr_info) -> bool>(
        info: *mut dl_phdr_info,
        _size: usize,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker gives a valid description, and passes on the closure, which
        // outlives the call.
        let (info, visit) = unsafe { (&*info, &mut *visit.cast::<F>()) };
        visit(info).into()
    }
    // SAFETY: the callback takes what is passed here.
    unsafe { libc::dl_iterate_phdr(Some(one::<F>), (&raw mut visit).cast()) };
}
