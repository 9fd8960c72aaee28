//! Look-ups in the dynamic linker that bypass this library's own `dlsym` and `dlopen`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Address of glibc's own `dlsym`, for look-ups of this library.
static LIBC_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static NEXT_DLCLOSE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The `dlsym` after this library's in search order: another preloaded library's, or glibc's.
pub static NEXT_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(nothing as *mut c_void);
/// The `dlopen` after this library's in search order.
pub static NEXT_DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(nothing as *mut c_void);

/// Stands for a function that was not found: glibc before 2.34 has these functions in a library
/// that not every process loads.
extern "C" fn nothing() -> *mut c_void {
    ptr::null_mut()
}

/// The first symbol version that glibc gave `dlsym` on this architecture.
const DLSYM_VERSION: &CStr = if cfg!(target_arch = "x86_64") {
    c"GLIBC_2.2.5"
} else {
    // The first version of glibc for 64-bit Arm.
    c"GLIBC_2.17"
};

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

/// Looks up the next functions in search order: the jump targets of this library's functions.
pub fn find_next() {
    if !ptr::eq(NEXT_DLOPEN.load(Ordering::Acquire), nothing as *mut c_void) {
        return;
    }
    let Some(dlsym) = libc_dlsym() else { return };
    let find = |next: &AtomicPtr<c_void>, name: &CStr| {
        // SAFETY: RTLD_NEXT asked from here means after this library, as intended.
        let address = unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if !address.is_null() {
            next.store(address, Ordering::Release);
        }
    };
    find(&NEXT_DLSYM, c"dlsym");
    find(&NEXT_DLCLOSE, c"dlclose");
    find(&NEXT_DLOPEN, c"dlopen");
}

/// Returns the address of a symbol in a library or its dependencies; null if there is none.
pub fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    match libc_dlsym() {
        // SAFETY: the name is a C string and the handle came from the dynamic linker.
        Some(dlsym) => unsafe { dlsym(library, name.as_ptr()) },
        None => ptr::null_mut(),
    }
}

/// Returns the address of a symbol in the libraries after this one in the global search order.
pub fn next_symbol(name: &CStr) -> *mut c_void {
    symbol(libc::RTLD_NEXT, name)
}

/// Returns a handle of a library that is in the process already.
pub fn loaded(name: &CStr) -> Option<*mut c_void> {
    open_with(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
}

/// Returns a handle of a library, which is loaded if it is not yet.
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

/// Returns the `dlclose` after this library's in search order.
pub fn next_dlclose() -> Option<unsafe extern "C" fn(*mut c_void) -> c_int> {
    let next = NEXT_DLCLOSE.load(Ordering::Acquire);
    // SAFETY: dlclose has this signature; null becomes None.
    unsafe { std::mem::transmute::<*mut c_void, Option<Dlclose>>(next) }
}

/// Returns the path of the library that contains an address.
pub fn library_at(address: *const c_void) -> Option<String> {
    // SAFETY: the library is in the process, as long as it is looked at here.
    let path = unsafe { path_at(address) }?;
    Some(path.to_string_lossy().into_owned())
}

/// Returns the path of the library that contains an address, in the memory of the dynamic linker.
///
/// # Safety
/// The path is not used after that library was unloaded.
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

/// Returns a handle of the library that contains an address; `None` for the main program, which is
/// not found by its name.
pub fn handle_of(address: *const c_void) -> Option<*mut c_void> {
    let path = std::ffi::CString::new(library_at(address)?).ok()?;
    loaded(&path)
}
