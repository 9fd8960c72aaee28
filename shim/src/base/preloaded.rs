//! Position of this library in search order: it decides if the process's calls pass through it.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use gpushim_unwind::each_object;
use libc::dl_phdr_info;

/// True if this library is before libc in search order: preloaded, or linked by the program. After
/// a later load by `dlopen` the linker binds no symbol to it, and the process's use of CUDA is not
/// seen.
pub fn is_ours() -> bool {
    static OURS: OnceLock<bool> = OnceLock::new();
    *OURS.get_or_init(|| {
        let us = is_ours as fn() -> bool as usize as u64;
        let mut ours = false;
        // The first of the two objects in search order decides.
        each_object(|object| {
            ours = holds(object, us);
            ours || name(object).ends_with(b"/libc.so.6")
        });
        ours
    })
}

/// Returns the file of this library, without links; `None` if it is gone.
pub fn file() -> Option<PathBuf> {
    let us = is_ours as fn() -> bool as usize as u64;
    let mut file = None;
    each_object(|object| {
        let is_found = holds(object, us);
        if is_found {
            file = std::fs::canonicalize(OsStr::from_bytes(name(object))).ok();
        }
        is_found
    });
    file
}

/// True if an address lies in an object.
fn holds(object: &dl_phdr_info, address: u64) -> bool {
    // SAFETY: the headers are valid while the object is shown.
    let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    headers.iter().any(|header| {
        let start = object.dlpi_addr.wrapping_add(header.p_vaddr);
        header.p_type == libc::PT_LOAD && address.wrapping_sub(start) < header.p_memsz
    })
}

fn name(object: &dl_phdr_info) -> &[u8] {
    if object.dlpi_name.is_null() {
        return b"";
    }
    // SAFETY: the name is a C string while the object is shown.
    unsafe { CStr::from_ptr(object.dlpi_name) }.to_bytes()
}
