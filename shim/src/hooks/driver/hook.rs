//! One hook: a function of the driver's, and ours in its place.

use std::ffi::c_void;

use crate::cuda::functions::Function;

/// A driver function that we stand in for.
pub struct Hook {
    /// The driver's function.
    pub function: &'static Function,
    /// Our function.
    pub ours: *const c_void,
}

// SAFETY: `ours` is the address of a function, which is code.
unsafe impl Sync for Hook {}

/// Declares hooks of driver functions that return a `CUresult`.
///
/// For each `fn name(args) body` this makes the exported function `name`, which runs `body` unless the shim is
/// bypassed or the driver is calling itself, and an entry in the module's `HOOKS`. The arguments are those of
/// `cuda::functions::real::name`, which is called with them.
macro_rules! driver_hooks {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        /// The hooks of this family.
        pub static HOOKS: &[$crate::hooks::driver::hook::Hook] = &[$($crate::hooks::driver::hook::Hook {
            function: &$crate::cuda::functions::slots::$name,
            ours: $name as *const std::ffi::c_void,
        }),*];
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
                    return unsafe { $crate::cuda::functions::real::$name($($arg),*) };
                }
                $crate::hooks::entry::serve(
                    // SAFETY: the caller's arguments, unchanged.
                    || unsafe { $crate::cuda::functions::real::$name($($arg),*) },
                    || $body,
                )
            }
        )*
    };
}
pub(crate) use driver_hooks;
