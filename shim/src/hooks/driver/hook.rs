//! One hook: a function of the driver, and the function of this library in its place.

use std::ffi::c_void;

use crate::cuda::functions::Function;

/// A driver function that this library replaces.
pub struct Hook {
    /// The function of the driver.
    pub function: &'static Function,
    /// The function of this library.
    pub ours: *const c_void,
}

// SAFETY: `ours` is the address of a function, which is code.
unsafe impl Sync for Hook {}

/// Declares hooks of driver functions that return a `CUresult`.
///
/// Each `fn name(args) body` makes the exported function `name` and an entry in the module's
/// `HOOKS`. The function runs `body`, unless the shim is bypassed or the driver is calling itself.
/// Then it calls `cuda::functions::real::name` with its arguments.
///
/// In `fn name(args) => inner, register, |caller| body` the body gets the address of its caller, by
/// the function `inner` and a register ([`door`](crate::hooks::door)).
macro_rules! driver_hooks {
    ($(
        $(#[$doc:meta])*
        fn $name:ident $args:tt $(=> $inner:ident, $register:tt, |$caller:ident|)? $body:block
    )*) => {
        /// The hooks of this family.
        pub static HOOKS: &[$crate::hooks::driver::hook::Hook] = &[$($crate::hooks::driver::hook::Hook {
            function: &$crate::cuda::functions::slots::$name,
            ours: $name as *const std::ffi::c_void,
        }),*];
        $($crate::hooks::driver::hook::driver_hook! {
            $(#[$doc])*
            fn $name $args $(=> $inner, $register, |$caller|)? $body
        })*
    };
}
pub(crate) use driver_hooks;

/// Defines the function of one hook of [`driver_hooks`].
macro_rules! driver_hook {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The contract of the driver's function of this name.
        #[allow(non_snake_case)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
            // SAFETY: the caller's arguments, unchanged.
            let driver = || unsafe { $crate::cuda::functions::real::$name($($arg),*) };
            $crate::hooks::entry::serve_call(driver, || $body)
        }
    };
    (
        $(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?)
        => $inner:ident, $register:tt, |$caller:ident| $body:block
    ) => {
        $crate::hooks::door::door! {
            $(#[$doc])*
            #[allow(non_snake_case)]
            fn $name($($arg: $ty),*) => $inner, $register
        }
        unsafe extern "C" fn $inner($($arg: $ty,)* $caller: *const std::ffi::c_void) -> CUresult {
            // SAFETY: the caller's arguments, unchanged.
            let driver = || unsafe { $crate::cuda::functions::real::$name($($arg),*) };
            $crate::hooks::entry::serve_call(driver, || $body)
        }
    };
}
pub(crate) use driver_hook;
