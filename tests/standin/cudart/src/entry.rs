//! Definition of an exported function. Its body returns a code, which becomes the thread's last
//! error.

/// Defines exported functions:
///
/// ```text
/// entries! {
///     /// The driver is initialised and a context current; `driver` calls it.
///     fn cudaFree(pointer: u64) |driver| { body: Code }
///     /// The same with its per-thread twin.
///     fn cudaFreeAsync | cudaFreeAsync_ptsz(pointer: u64, stream: Handle) |driver| { body: Code }
///     /// The driver is initialised, no context is asked for.
///     fn cudaGetDeviceCount(count: *mut c_int) [driver] { body: Code }
/// }
/// ```
macro_rules! entries {
    () => {};
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) |$driver:ident| $body:block $($rest:tt)*) => {
        entries! { @one $(#[$doc])* $name ($($arg: $type),*) crate::driver::Door::Legacy, crate::context::with, $driver $body }
        entries! { $($rest)* }
    };
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) [$driver:ident] $body:block $($rest:tt)*) => {
        entries! { @one $(#[$doc])* $name ($($arg: $type),*) crate::driver::Door::Legacy, crate::context::without, $driver $body }
        entries! { $($rest)* }
    };
    ($(#[$doc:meta])* fn $name:ident | $per_thread:ident($($arg:ident: $type:ty),* $(,)?) |$driver:ident| $body:block $($rest:tt)*) => {
        entries! { @one $(#[$doc])* $name ($($arg: $type),*) crate::driver::Door::Legacy, crate::context::with, $driver $body }
        entries! { @one $(#[$doc])* $per_thread ($($arg: $type),*) crate::driver::Door::PerThread, crate::context::with, $driver $body }
        entries! { $($rest)* }
    };
    (@one $(#[$doc:meta])* $name:ident ($($arg:ident: $type:ty),*) $door:expr, $with:path, $driver:ident $body:block) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The caller meets the requirements of the CUDA runtime's function of the same name.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        unsafe extern "C" fn $name($($arg: $type),*) -> crate::driver::Code {
            crate::error::finish($with($door, |$driver| $body))
        }
    };
}

/// Calls the driver with the arguments of this function's caller, which has promised their
/// validity.
macro_rules! forward {
    ($driver:ident.$name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: the arguments are the caller's, which upholds the contract of the runtime's
        // function and so the driver's.
        unsafe { $driver.$name($($arg),*) }
    };
}
