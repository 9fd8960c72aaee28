//! One hook: a function of the driver's, ours in its place, and where the real one is.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A driver function that we stand in for.
pub struct Hook {
    /// The exported name, with its version and `_ptsz` suffix.
    pub name: &'static CStr,
    /// Our function.
    pub ours: *const c_void,
    /// The driver's; null until the driver was seen, or if this driver has none.
    real: AtomicPtr<c_void>,
}

// SAFETY: `ours` is the address of a function; the rest is atomic.
unsafe impl Sync for Hook {}

impl Hook {
    /// A hook whose real function is not known yet.
    pub const fn new(name: &'static CStr, ours: *const c_void) -> Self {
        Hook {
            name,
            ours,
            real: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The driver's function, or null.
    #[inline]
    pub fn real(&self) -> *mut c_void {
        self.real.load(Ordering::Acquire)
    }

    /// Notes the driver's function.
    pub fn set_real(&self, address: *mut c_void) {
        self.real.store(address, Ordering::Release);
    }
}

/// Declares driver functions that we call but do not stand in for: `real::name` and `CALLS`.
macro_rules! driver_calls {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        $crate::hooks::hook::driver_functions! {
            $(fn $name($($arg: $ty),*) = std::ptr::null();)*
        }
        /// The functions of this family.
        pub static CALLS: &[&$crate::hooks::hook::Hook] = &[$(&slots::$name),*];
    };
}
pub(crate) use driver_calls;

/// Declares where driver functions are (`slots`) and how they are called (`real`).
macro_rules! driver_functions {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) = $ours:expr;)*) => {
        /// The driver's own functions of this family.
        #[allow(non_snake_case, missing_docs, dead_code, clippy::too_many_arguments)]
        pub mod real {
            use super::*;
            $(
                #[inline]
                pub unsafe fn $name($($arg: $ty),*) -> CUresult {
                    type Real = unsafe extern "C" fn($($ty),*) -> CUresult;
                    let Some(address) = $crate::cuda::driver::address(&super::slots::$name) else {
                        return $crate::cuda::driver::absent();
                    };
                    // The driver may wait, where a thread can be cancelled.
                    let _uncancelled = $crate::base::thread::Uncancelled::new();
                    // SAFETY: the address is what the driver exports under this name, whose
                    // signature this is.
                    unsafe { std::mem::transmute::<std::ptr::NonNull<_>, Real>(address)($($arg),*) }
                }
            )*
        }
        /// Where they are.
        #[allow(non_upper_case_globals, missing_docs)]
        pub mod slots {
            #[allow(unused_imports)]
            use super::*;
            use $crate::hooks::hook::Hook;
            $(
                pub static $name: Hook = Hook::new(
                    match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes(),
                    ) {
                        Ok(name) => name,
                        Err(_) => unreachable!(),
                    },
                    $ours,
                );
            )*
        }
    };
}
pub(crate) use driver_functions;

/// Declares hooks of driver functions that return a `CUresult`.
///
/// For each `fn name(args) body` this makes: the exported function `name`, which runs `body` unless
/// the shim is bypassed or the driver is calling itself; `real::name`, the driver's function; and an
/// entry in the module's `HOOKS`.
macro_rules! driver_hooks {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $crate::hooks::hook::driver_functions! {
            $(fn $name($($arg: $ty),*) = super::$name as *const std::ffi::c_void;)*
        }
        /// The hooks of this family.
        pub static HOOKS: &[&$crate::hooks::hook::Hook] = &[$(&slots::$name),*];
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the driver's function of this name.
            #[allow(non_snake_case)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                if $crate::base::thread::inside() {
                    // SAFETY: the caller's arguments, unchanged.
                    return unsafe { real::$name($($arg),*) };
                }
                $crate::base::process::boundary(
                    // SAFETY: the caller's arguments, unchanged.
                    || unsafe { real::$name($($arg),*) },
                    || $body,
                )
            }
        )*
    };
}
pub(crate) use driver_hooks;
