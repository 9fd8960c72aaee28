//! Symbols of CPython that are looked up in the process.

use std::ffi::{CStr, c_char, c_ulong, c_void};

/// Addresses of types, by which objects are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types {
    /// Address of `PyCode_Type`.
    pub code: u64,
    /// Address of `PyUnicode_Type`.
    pub text: u64,
    /// Address of `PyBytes_Type`.
    pub bytes: u64,
}

/// Functions and objects of an interpreter, all of which it exports.
#[derive(Clone, Copy, Debug)]
pub struct Symbols {
    /// Minor version; the major one is 3.
    pub minor: u8,
    /// Address of `_PyRuntime`.
    pub runtime: u64,
    /// Addresses of the object types.
    pub types: Types,
    /// Address of `_PyEval_EvalFrameDefault`.
    pub evaluator: u64,
    /// `PyGILState_GetThisThreadState`: reads the thread's own storage; null if there is no state.
    pub of_this_thread: unsafe extern "C" fn() -> *mut c_void,
    /// `PyThreadState_GetUnchecked`, before 3.13 `_PyThreadState_UncheckedGet`. Up to 3.11 it
    /// returns the thread state that holds the GIL, from 3.12 on the thread's own if it holds it.
    pub holder: Option<unsafe extern "C" fn() -> *mut c_void>,
}

impl Symbols {
    /// Looks the symbols up by their names. `look` returns the address of a name, or null. `None`
    /// if there is no interpreter.
    ///
    /// # Safety
    /// An address from `look` is the address of CPython's symbol with this name.
    pub unsafe fn find(look: impl Fn(&CStr) -> *mut c_void) -> Option<Symbols> {
        let some = |name: &CStr| Some(look(name)).filter(|found| !found.is_null());
        let address = |name: &CStr| some(name).map(|found| found as u64);
        let runtime = address(c"_PyRuntime")?;
        let of_this_thread = some(c"PyGILState_GetThisThreadState")?;
        let holder =
            some(c"_PyThreadState_UncheckedGet").or_else(|| some(c"PyThreadState_GetUnchecked"));
        let types = Types {
            code: address(c"PyCode_Type")?,
            text: address(c"PyUnicode_Type")?,
            bytes: address(c"PyBytes_Type")?,
        };
        let minor = match some(c"Py_Version") {
            // SAFETY: CPython declares it as a constant `unsigned long`.
            Some(version) => of_number(unsafe { *version.cast::<c_ulong>() })?,
            None => {
                let version = some(c"Py_GetVersion")?;
                // SAFETY: CPython's function has this signature; it gives a text that stays.
                let text = unsafe {
                    let version = std::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C" fn() -> *const c_char,
                    >(version);
                    CStr::from_ptr(version())
                };
                of_text(text.to_bytes())?
            }
        };
        type Getter = unsafe extern "C" fn() -> *mut c_void;
        Some(Symbols {
            minor,
            runtime,
            types,
            evaluator: address(c"_PyEval_EvalFrameDefault")?,
            // SAFETY: CPython's function has this signature.
            of_this_thread: unsafe { std::mem::transmute::<*mut c_void, Getter>(of_this_thread) },
            // SAFETY: as above.
            holder: holder
                .map(|found| unsafe { std::mem::transmute::<*mut c_void, Getter>(found) }),
        })
    }
}

/// Returns the minor version in `PY_VERSION_HEX`; `None` unless the major one is 3.
fn of_number(version: c_ulong) -> Option<u8> {
    (version >> 24 == 3).then_some((version >> 16) as u8)
}

/// Returns the minor version in a text like `3.8.18 (default, …`.
fn of_text(text: &[u8]) -> Option<u8> {
    let rest = text.strip_prefix(b"3.")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(rest.get(..digits)?).ok()?.parse().ok()
}

/// Returns the id of the calling thread, as CPython numbers threads.
#[inline]
pub fn this_thread() -> u64 {
    // SAFETY: it cannot fail.
    unsafe { libc::pthread_self() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(of_text(b"3.8.18 (default, Jan 1)"), Some(8));
        assert_eq!(of_text(b"3.14.0b4+ (main)"), Some(14));
        for other in [&b"2.7.18 (x)"[..], b"3.", b"", b"4.1"] {
            assert_eq!(of_text(other), None);
        }
        assert_eq!(of_number(0x030d_00f0), Some(13));
        assert_eq!(of_number(0x0400_0000), None);
    }
}
