//! The dynamic linker's doors: `dlsym`, `dlopen` and `dlclose`, exported here and passed on.
//!
//! What `RTLD_NEXT` and `RTLD_DEFAULT` mean depends on the address that `dlsym` returns to, so a call
//! that we do not answer must reach the next `dlsym` as if we were not there: by a jump, with the
//! stack and the registers of the caller. rustc writes no unwind information for naked functions: it is
//! in the `.cfi` directives.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::base::process;
use crate::cuda::driver;
use crate::hooks::runtime;
use crate::record::{events, stacks};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;

/// glibc's own `dlsym`, for our look-ups.
static LIBC_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The `dlsym` and `dlopen` after ours in search order: another preloaded library's, or glibc's.
static NEXT_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(nothing as *mut c_void);
static NEXT_DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(nothing as *mut c_void);
static NEXT_DLCLOSE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// What stands there while there is none: glibc before 2.34 has these functions in a library that not every
/// process loads.
extern "C" fn nothing() -> *mut c_void {
    ptr::null_mut()
}

/// The first symbol version that glibc gave `dlsym` on this architecture.
const DLSYM_VERSION: &CStr = c"GLIBC_2.2.5";

fn libc_dlsym() -> Option<Dlsym> {
    let mut address = LIBC_DLSYM.load(Ordering::Acquire);
    if address.is_null() {
        // SAFETY: both strings are C strings; dlvsym is not interposed by us.
        address =
            unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), DLSYM_VERSION.as_ptr()) };
        LIBC_DLSYM.store(address, Ordering::Release);
    }
    // SAFETY: glibc's dlsym has this signature; null becomes None.
    unsafe { std::mem::transmute::<*mut c_void, Option<Dlsym>>(address) }
}

/// Fills the jump targets of the naked functions below.
fn find_next() {
    if !ptr::eq(NEXT_DLOPEN.load(Ordering::Acquire), nothing as *mut c_void) {
        return;
    }
    let Some(dlsym) = libc_dlsym() else { return };
    let find = |next: &AtomicPtr<c_void>, name: &CStr| {
        // SAFETY: RTLD_NEXT asked from here means after this library, which is what we want.
        let address = unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if !address.is_null() {
            next.store(address, Ordering::Release);
        }
    };
    find(&NEXT_DLSYM, c"dlsym");
    find(&NEXT_DLCLOSE, c"dlclose");
    find(&NEXT_DLOPEN, c"dlopen");
}

/// The address of a symbol in a library or what it depends on; null if there is none.
pub fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    match libc_dlsym() {
        // SAFETY: the name is a C string and the handle came from the dynamic linker.
        Some(dlsym) => unsafe { dlsym(library, name.as_ptr()) },
        None => ptr::null_mut(),
    }
}

/// The address of a symbol in the libraries after this one in the global search order.
pub fn next_symbol(name: &CStr) -> *mut c_void {
    symbol(libc::RTLD_NEXT, name)
}

/// A handle of a library that is in the process already.
pub fn loaded(name: &CStr) -> Option<*mut c_void> {
    open_with(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
}

/// A handle of a library, which is loaded if it is not yet.
pub fn open(name: &CStr) -> Option<*mut c_void> {
    open_with(name, libc::RTLD_LAZY)
}

fn open_with(name: &CStr, mode: c_int) -> Option<*mut c_void> {
    find_next();
    let next = NEXT_DLOPEN.load(Ordering::Acquire);
    // SAFETY: dlopen has this signature; null becomes None.
    let dlopen = unsafe { std::mem::transmute::<*mut c_void, Option<Dlopen>>(next) }?;
    // SAFETY: the name is a C string, and the mode one of the two above.
    let handle = unsafe { dlopen(name.as_ptr(), mode) };
    (!handle.is_null()).then_some(handle)
}

/// `dlsym` for everyone in the process.
///
/// # Safety
/// As dlsym(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "mov rdx, [rsp + 16]",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {answer}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rdx, rdx",
        "jz 2f",
        "ret",
        "2:",
        "jmp qword ptr [rip + {next}]",
        ".cfi_endproc",
        answer = sym answer_dlsym,
        next = sym NEXT_DLSYM,
    )
}

/// `dlopen` for everyone in the process: looked at, never changed.
///
/// # Safety
/// As dlopen(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {look}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp qword ptr [rip + {next}]",
        ".cfi_endproc",
        look = sym look_at_dlopen,
        next = sym NEXT_DLOPEN,
    )
}

/// `dlclose` for everyone in the process: passed on, and then looked at.
///
/// # Safety
/// As dlclose(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    find_next();
    let next = NEXT_DLCLOSE.load(Ordering::Acquire);
    // SAFETY: dlclose has this signature; null becomes None.
    let Some(dlclose) = (unsafe { std::mem::transmute::<*mut c_void, Option<Dlclose>>(next) })
    else {
        return -1;
    };
    // SAFETY: the caller's promise.
    let result = unsafe { dlclose(handle) };
    if !process::bypassed() {
        process::boundary(|| (), stacks::closed);
    }
    result
}

/// What a `dlsym` gets: in two registers, as the jump above reads them.
#[repr(C)]
struct Answer {
    address: *const c_void,
    /// Zero: the next `dlsym` answers.
    is_ours: usize,
}

impl Answer {
    const fn of_next() -> Answer {
        Answer {
            address: ptr::null(),
            is_ours: 0,
        }
    }

    fn of(address: *const c_void) -> Answer {
        Answer {
            address,
            is_ours: 1,
        }
    }
}

/// What we answer to a `dlsym` whose caller is at this address.
extern "C" fn answer_dlsym(
    handle: *mut c_void,
    name: *const c_char,
    caller: *const c_void,
) -> Answer {
    find_next();
    if name.is_null() {
        return Answer::of_next();
    }
    // SAFETY: dlsym is given C strings.
    let name = unsafe { CStr::from_ptr(name) };
    if !name.to_bytes().starts_with(b"cu") || process::bypassed() {
        return Answer::of_next();
    }
    process::boundary(Answer::of_next, || {
        let ours = export(name);
        if ours.is_null() {
            return Answer::of_next();
        }
        // What these mean depends on the caller, for whom only the next one can ask.
        let is_relative = handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT;
        // In the global scope ours are the first, but for those of the program itself.
        let found = match is_relative {
            true => symbol(libc::RTLD_DEFAULT, name),
            false => symbol(handle, name),
        };
        if ptr::eq(found, ours) {
            return if is_only_ours(name, ours, caller) {
                Answer::of(ptr::null())
            } else {
                Answer::of_next()
            };
        }
        if is_relative {
            return Answer::of_next();
        }
        match driver::substitute(found) {
            substitute if substitute.is_null() => Answer::of_next(),
            substitute => Answer::of(substitute),
        }
    })
}

/// Our function of a name of CUDA's; null if there is none.
fn export(name: &CStr) -> *const c_void {
    let of_driver = driver::hook(name);
    if !of_driver.is_null() {
        return of_driver;
    }
    let mut of_runtime = runtime::exports();
    of_runtime
        .find(|(known, _)| *known == name)
        .map_or(ptr::null(), |(_, ours)| ours)
}

/// Whether a function of CUDA's is in the process only as this export of ours: without CUDA it is not there.
/// The caller's `dlerror` then says so.
fn is_only_ours(name: &CStr, ours: *const c_void, caller: *const c_void) -> bool {
    let is_another = |found: *mut c_void| !found.is_null() && !ptr::eq(found, ours);
    if is_another(next_symbol(name)) {
        return false;
    }
    // A library that was loaded with RTLD_LOCAL sees what it depends on, too.
    if let Some(library) = handle_of(caller) {
        let of_caller = symbol(library, name);
        let next = NEXT_DLCLOSE.load(Ordering::Acquire);
        // SAFETY: dlclose has this signature; null becomes None.
        if let Some(close) = unsafe { std::mem::transmute::<*mut c_void, Option<Dlclose>>(next) } {
            // SAFETY: the handle is not used any more, and the caller keeps its own library.
            unsafe { close(library) };
        }
        if is_another(of_caller) {
            return false;
        }
    }
    // Once more, for the error of it.
    next_symbol(name).is_null()
}

extern "C" fn look_at_dlopen(file: *const c_char, mode: c_int) {
    find_next();
    // Such a library finds its own dependencies before us: what it calls may never reach a hook.
    if mode & libc::RTLD_DEEPBIND != 0 && !file.is_null() && !process::bypassed() {
        process::boundary(
            || (),
            || {
                // SAFETY: dlopen is given C strings.
                let file = unsafe { CStr::from_ptr(file) };
                crate::cuda::context::distrust();
                events::fact("deepbind", &file.to_string_lossy());
            },
        );
    }
}

/// The path of the library that contains an address.
pub fn library_at(address: *const c_void) -> Option<String> {
    // SAFETY: the library is in the process, as long as it is looked at here.
    let path = unsafe { path_at(address) }?;
    Some(path.to_string_lossy().into_owned())
}

/// The path of the library that contains an address, where the dynamic linker has it.
///
/// # Safety
/// The path is not used any more when that library is unloaded.
pub unsafe fn path_at<'a>(address: *const c_void) -> Option<&'a CStr> {
    // SAFETY: Dl_info is plain data that dladdr fills.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked about; `info` is ours.
    if unsafe { libc::dladdr(address, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr returned success, so the name is a C string.
    Some(unsafe { CStr::from_ptr(info.dli_fname) })
}

/// A handle of the library that contains an address; `None` for the main program, which is not
/// found under its name.
pub fn handle_of(address: *const c_void) -> Option<*mut c_void> {
    let path = std::ffi::CString::new(library_at(address)?).ok()?;
    loaded(&path)
}
