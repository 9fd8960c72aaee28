//! NVTX: the program's ranges and marks arrive here, because `NVTX_INJECTION64_PATH` names this
//! library. The variable may have named a profiler's library before. Then that library gets every
//! call first, and the program gets its result.
//!
//! Each library that uses NVTX 3 has its own table, into which `InitializeInjectionNvtx2` writes
//! callbacks once. Numbers and layouts are from NVTX's `nvtxTypes.h` and `nvToolsExt.h`, version
//! 3.2.

use std::ffi::{CStr, CString, OsString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gpushim_config::{Announcements, Config, NVTX};

use crate::base::{boundary, linker, preloaded, settings};
use crate::hooks::entry;
mod callbacks;
mod table;

use table::Tables;

/// The variable that names the library that NVTX loads.
const VARIABLE: &str = "NVTX_INJECTION64_PATH";
const VARIABLE_C: &CStr = c"NVTX_INJECTION64_PATH";
/// The variable with the library that was named before: in the environment, so that child processes
/// find it.
const BEFORE: &str = "_GPUSHIM_NVTX_BEFORE";

const INITIALIZE: &CStr = c"InitializeInjectionNvtx2";
const EXTENSION: &CStr = c"InitializeInjectionNvtxExtension";

type Initialize = unsafe extern "C" fn(Option<table::GetExportTable>) -> c_int;
type Extension = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Called by the dynamic linker once the library's dependencies are ready, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    if preloaded::is_ours() && is_wanted() {
        // SAFETY: the place of the calling thread's error number, which the program finds
        // unchanged.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        let before = unsafe { *errno };
        boundary::run(|| (), take_place);
        // SAFETY: as above.
        unsafe { *errno = before };
    }
}

/// True if ranges and marks are recorded (`GPUSHIM_NVTX`). Read once, before the rest of the
/// configuration.
pub fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| {
        if settings::is_privileged() || settings::is_off() {
            // A file that another user's environment names must not be loaded.
            return false;
        }
        // Nearly every process takes this path: the default is `auto`, and the rest is not read.
        if std::env::var_os(NVTX.name).is_none() {
            return true;
        }
        let of_interest = |name: &str| (name == NVTX.name).then(|| std::env::var_os(name));
        // An invalid value is reported later, at the first call that the shim serves.
        let (config, _) = Config::from_lookup(|name| of_interest(name).flatten());
        config.nvtx == Announcements::Auto
    })
}

/// Puts this library in the place of the library that NVTX would load.
fn take_place() {
    if is_inherited() {
        return;
    }
    let Some(own) = own_path() else { return };
    let before = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    // SAFETY: preloaded libraries are initialised before the program's first thread.
    unsafe {
        match before {
            // The same file by another name.
            Some(path) if is_same_file(&path, &own) => {}
            Some(path) => std::env::set_var(BEFORE, path),
            None => std::env::remove_var(BEFORE),
        }
        std::env::set_var(VARIABLE, &own);
    }
}

/// True if a parent process did the same: the earlier library is inherited, too. Most processes
/// take this path, and need neither memory nor access to a file.
fn is_inherited() -> bool {
    // SAFETY: before `main` no other thread changes the environment, and null is not taken for a
    // text.
    let now = unsafe {
        let now = libc::getenv(VARIABLE_C.as_ptr());
        (!now.is_null()).then(|| CStr::from_ptr(now))
    };
    // SAFETY: this library is never unloaded.
    let own = unsafe { linker::path_at(InitializeInjectionNvtx2 as *const c_void) };
    now.is_some() && now == own
}

fn own_path() -> Option<PathBuf> {
    let path = linker::library_at(InitializeInjectionNvtx2 as *const c_void)?;
    let path = PathBuf::from(path);
    if path.is_absolute() {
        // Without access to the file, in a process that may never use CUDA.
        return Some(path);
    }
    std::fs::canonicalize(path).ok()
}

fn is_same_file(path: &OsString, own: &Path) -> bool {
    std::fs::canonicalize(path).is_ok_and(|path| path == own)
}

/// Returns a function of the profiler's library; null if there is none. The library stays loaded,
/// as NVTX itself would keep it.
fn of_profiler(name: &CStr) -> *mut c_void {
    let null = std::ptr::null_mut();
    let Some(path) = settings::variable(BEFORE) else {
        return null;
    };
    let Ok(path) = CString::new(path.as_bytes()) else {
        return null;
    };
    match linker::open(&path) {
        Some(library) => linker::symbol(library, name),
        None => null,
    }
}

/// Writes callbacks for NVTX. Returns 0 if there are none.
///
/// # Safety
/// Called by NVTX only, with the function that gives its tables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get: Option<table::GetExportTable>) -> c_int {
    let found = of_profiler(INITIALIZE);
    let ours = InitializeInjectionNvtx2 as *const c_void;
    // SAFETY: what a library exports under this name has this signature; null becomes None.
    let profiler = unsafe { std::mem::transmute::<*mut c_void, Option<Initialize>>(found) }
        .filter(|_| !std::ptr::eq(found.cast_const(), ours));
    // SAFETY: NVTX gave the function.
    let tables = get.and_then(|get| unsafe { Tables::of(get) });
    // SAFETY: the argument is what NVTX gave us for this.
    let accepted = profiler.is_some_and(|initialize| unsafe { initialize(get) } != 0);
    let Some(tables) = tables.filter(|_| preloaded::is_ours() && is_wanted()) else {
        return accepted.into();
    };
    if profiler.is_some() && !accepted {
        tables.restore();
    }
    entry::serve(
        || accepted.into(),
        || {
            callbacks::install(&tables, accepted);
            1
        },
    )
}

/// Passes NVTX's request for an extension's callbacks to the profiler: this library has none.
/// Returns 0 if there are none.
///
/// # Safety
/// Called by NVTX only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtxExtension(module: *mut c_void) -> c_int {
    let found = of_profiler(EXTENSION);
    let ours = InitializeInjectionNvtxExtension as *const c_void;
    // SAFETY: what a library exports under this name has this signature; null becomes None.
    let profiler = unsafe { std::mem::transmute::<*mut c_void, Option<Extension>>(found) }
        .filter(|_| !std::ptr::eq(found.cast_const(), ours));
    // SAFETY: the argument is what NVTX gave us for this.
    profiler.map_or(0, |initialize| unsafe { initialize(module) })
}
