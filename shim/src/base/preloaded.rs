//! Whether the process's calls pass through this library.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

/// Whether we stand before libc in search order: preloaded, or linked by the program. After a later load by `dlopen`
/// the linker binds no symbol to ours, and we do not see what the process does with CUDA.
pub fn is_ours() -> bool {
    static OURS: OnceLock<bool> = OnceLock::new();
    *OURS.get_or_init(|| {
        let mut first = None;
        // SAFETY: the callback gets the option, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut first).cast()) };
        first == Some(Found::Us)
    })
}

#[derive(PartialEq)]
enum Found {
    Us,
    Libc,
}

/// Stops at whichever of the two comes first; libraries are listed in search order.
extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, first: *mut c_void) -> i32 {
    // SAFETY: `info` describes a loaded object, whose headers and name are valid during the call.
    let (base, headers, name) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let name = (!info.dlpi_name.is_null()).then(|| CStr::from_ptr(info.dlpi_name).to_bytes());
        (info.dlpi_addr, headers, name.unwrap_or_default())
    };
    let us = is_ours as fn() -> bool as usize as u64;
    let holds_us = |header: &libc::Elf64_Phdr| {
        let start = base.wrapping_add(header.p_vaddr);
        header.p_type == libc::PT_LOAD && us.wrapping_sub(start) < header.p_memsz
    };
    let found = if headers.iter().any(holds_us) {
        Found::Us
    } else if name.ends_with(b"/libc.so.6") {
        Found::Libc
    } else {
        return 0;
    };
    // SAFETY: `first` is the option above.
    unsafe { *first.cast::<Option<Found>>() = Some(found) };
    1
}
