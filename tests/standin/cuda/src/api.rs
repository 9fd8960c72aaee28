//! Definition of a driver function in one place, with its name, version and variants.
//!
//! The `api!` macro makes the exported symbols from it. It also makes the module's part of the
//! table that `cuGetProcAddress` searches.

use crate::codes::{CUresult, Outcome};

/// Default stream that a variant of a function means by stream 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The legacy stream of the context.
    Legacy,
    /// The thread's own stream: the `_ptsz` and `_ptds` variants.
    PerThread,
}

/// One variant of a function.
pub struct Proc {
    /// Name without suffixes, as callers of `cuGetProcAddress` pass it.
    pub name: &'static str,
    /// CUDA version in which this variant appeared.
    pub version: i32,
    /// Symbol that the library exports.
    pub symbol: &'static str,
    /// Default stream that the variant means; none if it takes no stream.
    pub via: Option<Via>,
    pub address: Entry,
}

/// Address of an exported function.
pub struct Entry(pub *const ());

// SAFETY: the address of a function means the same in every thread.
unsafe impl Sync for Entry {}

/// CUDA version of the `_ptsz` and `_ptds` variants of functions older than CUDA 7.0.
pub const PER_THREAD_SINCE: i32 = 7000;

/// Runs the body of a driver function, unless the function is disabled or lacking.
pub fn call(symbol: &'static str, body: impl FnOnce() -> Outcome) -> CUresult {
    // Keeps functions with equal bodies at different addresses, as the real ones are.
    std::hint::black_box(symbol);
    // An older driver would not export a disabled function. The stand-in cannot hide an export.
    if crate::procs::is_disabled(symbol) || crate::procs::is_lacking(symbol) {
        return crate::codes::NOT_SUPPORTED;
    }
    crate::fault::run(symbol, body)
}

/// Defines driver functions:
///
/// ```text
/// api! {
///     /// Docs.
///     name version => fn symbol(argument: Type) { body: Outcome }
///     /// Docs.
///     name version => fn symbol | symbol_ptsz[via](argument: Type, stream: u64) { body: Outcome }
/// }
/// ```
macro_rules! api {
    (@build [$($procs:tt)*]) => {
        /// Driver functions of this module.
        pub static PROCS: &[$crate::api::Proc] = &[$($procs)*];
    };
    (@build [$($procs:tt)*]
        $(#[$doc:meta])*
        $name:ident $version:literal => fn $symbol:ident($($arg:ident: $type:ty),* $(,)?) $body:block
        $($rest:tt)*
    ) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub extern "C" fn $symbol($($arg: $type),*) -> $crate::codes::CUresult {
            $crate::api::call(stringify!($symbol), || $body)
        }
        api! { @build [$($procs)* $crate::api::Proc {
            name: stringify!($name),
            version: $version,
            symbol: stringify!($symbol),
            via: None,
            address: $crate::api::Entry($symbol as *const ()),
        },] $($rest)* }
    };
    (@build [$($procs:tt)*]
        $(#[$doc:meta])*
        $name:ident $version:literal => fn $symbol:ident | $per_thread:ident[$via:ident]($($arg:ident: $type:ty),* $(,)?) $body:block
        $($rest:tt)*
    ) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub extern "C" fn $symbol($($arg: $type),*) -> $crate::codes::CUresult {
            let $via = $crate::api::Via::Legacy;
            $crate::api::call(stringify!($symbol), || $body)
        }
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub extern "C" fn $per_thread($($arg: $type),*) -> $crate::codes::CUresult {
            let $via = $crate::api::Via::PerThread;
            $crate::api::call(stringify!($per_thread), || $body)
        }
        api! { @build [$($procs)* $crate::api::Proc {
            name: stringify!($name),
            version: $version,
            symbol: stringify!($symbol),
            via: Some($crate::api::Via::Legacy),
            address: $crate::api::Entry($symbol as *const ()),
        }, $crate::api::Proc {
            name: stringify!($name),
            version: if $version > $crate::api::PER_THREAD_SINCE { $version } else { $crate::api::PER_THREAD_SINCE },
            symbol: stringify!($per_thread),
            via: Some($crate::api::Via::PerThread),
            address: $crate::api::Entry($per_thread as *const ()),
        },] $($rest)* }
    };
    ($($all:tt)*) => { api! { @build [] $($all)* } };
}
