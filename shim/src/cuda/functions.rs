//! The driver's functions: their addresses in this process, and the calls of them.
//!
//! `list.rs` has their signatures. Each function has `slots::NAME`, its address, and `real::NAME`,
//! which calls it.

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::base::linker;
use crate::cuda::types::{CUresult, NOT_FOUND, STUB_LIBRARY};
mod list;

pub use list::{real, slots};

/// A function of the driver.
pub struct Function {
    /// The exported name, with its version and `_ptsz` suffix.
    pub name: &'static CStr,
    /// Its address; null until the driver was found, or if this driver does not have it.
    real: AtomicPtr<c_void>,
}

impl Function {
    /// Makes a function whose address is not known yet.
    const fn new(name: &'static CStr) -> Self {
        Function {
            name,
            real: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Returns its address, or null.
    #[inline]
    pub fn real(&self) -> *mut c_void {
        self.real.load(Ordering::Acquire)
    }
}

static RESOLVED: AtomicBool = AtomicBool::new(false);

/// Looks the functions up if the driver is in the process. Cheap once it was found.
pub fn resolve() -> bool {
    if RESOLVED.load(Ordering::Acquire) {
        return true;
    }
    static RESOLVE: Once = Once::new();
    let Some(library) = linker::loaded(c"libcuda.so.1") else {
        return false;
    };
    RESOLVE.call_once(|| {
        for function in list::ALL {
            let address = linker::symbol(library, function.name);
            function.real.store(address, Ordering::Release);
        }
        RESOLVED.store(true, Ordering::Release);
    });
    true
}

/// Returns a function's address. A program linked against libcuda may reach an exported hook before
/// any look-up.
#[inline]
pub fn address(function: &Function) -> Option<NonNull<c_void>> {
    NonNull::new(function.real()).or_else(|| {
        resolve();
        NonNull::new(function.real())
    })
}

/// Returns the error of a function that the driver does not have, or that is called without a
/// driver.
#[cold]
pub fn absent() -> CUresult {
    if resolve() { NOT_FOUND } else { STUB_LIBRARY }
}

/// Declares driver functions: `slots` with their addresses, `real` with their calls, and `ALL`.
macro_rules! declare {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        /// The driver's own functions.
        #[allow(non_snake_case, missing_docs, dead_code, clippy::too_many_arguments)]
        pub mod real {
            use super::*;
            $(
                #[inline]
                pub unsafe fn $name($($arg: $ty),*) -> CUresult {
                    type Real = unsafe extern "C" fn($($ty),*) -> CUresult;
                    let Some(address) = $crate::cuda::functions::address(&super::slots::$name) else {
                        return $crate::cuda::functions::absent();
                    };
                    // The driver may wait at a point where a thread can be cancelled.
                    let _uncancelled = $crate::base::thread::Uncancelled::new();
                    // SAFETY: the address is the driver's export of this name, which has this
                    // signature.
                    unsafe { std::mem::transmute::<std::ptr::NonNull<_>, Real>(address)($($arg),*) }
                }
            )*
        }
        /// Addresses of the driver's functions.
        #[allow(non_upper_case_globals, missing_docs)]
        pub mod slots {
            use $crate::cuda::functions::Function;
            $(
                pub static $name: Function = Function::new(
                    match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes(),
                    ) {
                        Ok(name) => name,
                        Err(_) => unreachable!(),
                    },
                );
            )*
        }
        /// All functions that are declared.
        pub static ALL: &[&$crate::cuda::functions::Function] = &[$(&slots::$name),*];
    };
}
use declare;
