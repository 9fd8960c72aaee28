//! NCCL's functions that make communicators: recorded and passed on. NCCL takes their memory on its
//! own threads, whose stacks do not show the caller.
//!
//! The real function is the one of the library on which the caller depends. For a pointer that the
//! program looked up in a library, it is the function of this library. The signatures are from
//! `nccl.h`, since NCCL 2.4.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::cuda::types::Handle;
use crate::hooks::caller::Interposed;
use crate::hooks::door::{c_name, door};
use crate::hooks::entry;
use crate::record::outside;

/// NCCL's `ncclUniqueId`, which is passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId([u8; 128]);

/// NCCL's `ncclSystemError`, returned if no NCCL is found behind the symbol.
const SYSTEM_ERROR: c_int = 2;
/// NCCL's `ncclSuccess`: no error.
const SUCCESS: c_int = 0;

/// Defines functions of NCCL, each behind a [`door`].
macro_rules! nccl_functions {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident: $type:ty),*), $inner:ident, $found:ident, $($register:tt)|+,
        ($ranks:expr, $rank:expr) -> $made:ident;
    )*) => { $(
        door! {
            $(#[$doc])*
            fn $name($($arg: $type),*) => $inner, $($register)|+
        }

        unsafe extern "C" fn $inner($($arg: $type,)* caller: *const c_void) -> c_int {
            static REAL: Interposed = Interposed::new(c_name!($name));
            type Function = unsafe extern "C" fn($($type),*) -> c_int;
            let Some(real) = REAL.real(caller) else {
                return SYSTEM_ERROR;
            };
            // SAFETY: NCCL's function of this name has this signature; the caller's arguments.
            making(($ranks, $rank), $made, || unsafe {
                std::mem::transmute::<*const c_void, Function>(real.address)($($arg),*)
            })
        }

        /// Replaces the function in a program that looked it up in a library.
        unsafe extern "C" fn $found($($arg: $type),*) -> c_int {
            type Function = unsafe extern "C" fn($($type),*) -> c_int;
            let real = place(stringify!($name)).map_or(ptr::null_mut(), |of| of.load(Ordering::Acquire));
            if real.is_null() {
                return SYSTEM_ERROR;
            }
            // SAFETY: NCCL's function of this name has this signature; the caller's arguments.
            making(($ranks, $rank), $made, || unsafe {
                std::mem::transmute::<*mut c_void, Function>(real)($($arg),*)
            })
        }
    )*
        const NAMES: [&str; [$(stringify!($name)),*].len()] = [$(stringify!($name)),*];

        /// Functions that programs looked up in libraries, by name.
        static FOUND: [AtomicPtr<c_void>; NAMES.len()] =
            [const { AtomicPtr::new(ptr::null_mut()) }; NAMES.len()];

        fn exported() -> [*const c_void; NAMES.len()] {
            [$($name as *const c_void),*]
        }

        fn looked_up() -> [*const c_void; NAMES.len()] {
            [$($found as *const c_void),*]
        }
    };
}

nccl_functions! {
    /// Makes a communicator of these ranks, of which this process is one.
    fn ncclCommInitRank(comm: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int),
        init_rank, found_init_rank, "rcx" | "x4", (ranks, rank) -> comm;
    /// Makes a communicator of these ranks, with a configuration.
    fn ncclCommInitRankConfig(
        comm: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int, config: *mut c_void
    ), init_rank_config, found_init_rank_config, "r8" | "x5", (ranks, rank) -> comm;
    /// Makes communicators of all devices of this process.
    fn ncclCommInitAll(comms: *mut Handle, devices: c_int, list: *const c_int),
        init_all, found_init_all, "rcx", (devices, 0) -> comms;
    /// Makes a communicator of the ranks of another one that name the same color.
    fn ncclCommSplit(
        comm: Handle, color: c_int, key: c_int, made: *mut Handle, config: *mut c_void
    ), split, found_split, "r9", (0, key) -> made;
}

/// Calls a function that makes a communicator, and records its begin and its end.
fn making((ranks, rank): (c_int, c_int), made: *mut Handle, call: impl FnOnce() -> c_int) -> c_int {
    let word = |number: c_int| u64::try_from(number).unwrap_or(0);
    entry::serve(
        || (),
        || outside::communicator_begins(word(ranks), word(rank)),
    );
    let result = call();
    entry::serve(
        || (),
        || {
            let handle = match result == SUCCESS && !made.is_null() {
                // SAFETY: not null, and NCCL wrote the handle.
                true => (unsafe { *made }) as u64,
                false => 0,
            };
            outside::communicator_ends(handle, result);
        },
    );
    result
}

fn number(name: &[u8]) -> Option<usize> {
    NAMES.iter().position(|known| known.as_bytes() == name)
}

fn place(name: &str) -> Option<&'static AtomicPtr<c_void>> {
    FOUND.get(number(name.as_bytes())?)
}

/// Returns the exported function of a name; null if there is none.
pub fn export(name: &CStr) -> *const c_void {
    let number = number(name.to_bytes());
    let ours = number.and_then(|number| exported().get(number).copied());
    ours.unwrap_or(ptr::null())
}

/// Returns the replacement of a function that a program found in a library. Null if it is not
/// replaced, or if another library's function was found before.
pub fn substitute(name: &CStr, found: *mut c_void) -> *const c_void {
    let Some(number) = number(name.to_bytes()).filter(|_| !found.is_null()) else {
        return ptr::null();
    };
    let Some((place, ours)) = FOUND.get(number).zip(looked_up().get(number).copied()) else {
        return ptr::null();
    };
    let kept = place.compare_exchange(ptr::null_mut(), found, Ordering::AcqRel, Ordering::Acquire);
    match kept {
        Ok(_) => ours,
        Err(known) if known == found => ours,
        Err(_) => ptr::null(),
    }
}
