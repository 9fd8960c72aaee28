//! The dynamic linker's functions `dlsym`, `dlopen` and `dlclose`: exported here and passed on.
//!
//! The meaning of `RTLD_NEXT` and `RTLD_DEFAULT` depends on the address to which `dlsym` returns.
//! So a call that is not answered here must reach the next `dlsym` unchanged: by a jump, with the
//! stack and the registers of the caller. rustc writes no unwind information for naked functions:
//! it is in the `.cfi` directives.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use crate::base::{boundary, linker, settings};
use crate::hooks::{driver, entry, nccl, nvml, runtime};
use crate::record::{stacks, trace};

/// `dlsym` for every caller in the process.
///
/// # Safety
/// The contract of dlsym(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "mov x2, x30",
        "bl {answer}",
        "mov x9, x1",
        "mov x10, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "cbz x9, 2f",
        "mov x0, x10",
        "ret",
        "2:",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "br x16",
        ".cfi_endproc",
        answer = sym answer_dlsym,
        next = sym linker::NEXT_DLSYM,
    );
    #[cfg(target_arch = "x86_64")]
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
        next = sym linker::NEXT_DLSYM,
    )
}

/// `dlopen` for every caller in the process: observed, never changed.
///
/// # Safety
/// The contract of dlopen(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void {
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "bl {look}",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "br x16",
        ".cfi_endproc",
        look = sym look_at_dlopen,
        next = sym linker::NEXT_DLOPEN,
    );
    #[cfg(target_arch = "x86_64")]
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
        next = sym linker::NEXT_DLOPEN,
    )
}

/// `dlclose` for every caller in the process: passed on, and then observed.
///
/// # Safety
/// The contract of dlclose(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    linker::find_next();
    let Some(dlclose) = linker::next_dlclose() else {
        return -1;
    };
    // SAFETY: the caller's promise.
    let result = unsafe { dlclose(handle) };
    if !boundary::bypassed() {
        entry::serve(|| (), stacks::closed);
    }
    result
}

/// Answer to a `dlsym`, in two registers, as the jump above reads them.
#[repr(C)]
struct Answer {
    address: *const c_void,
    /// Not zero if `address` is the answer. Zero: the next `dlsym` answers.
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

/// Answers a `dlsym` whose caller is at this address.
extern "C" fn answer_dlsym(
    handle: *mut c_void,
    name: *const c_char,
    caller: *const c_void,
) -> Answer {
    linker::find_next();
    if name.is_null() {
        return Answer::of_next();
    }
    // SAFETY: dlsym is given C strings.
    let name = unsafe { CStr::from_ptr(name) };
    if name.to_bytes().starts_with(b"nvmlDeviceGetMemoryInfo") {
        return boundary::caught(Answer::of_next, || look_up_in_nvml(handle, name));
    }
    let is_known = [&b"cu"[..], b"ncclComm"]
        .iter()
        .any(|start| name.to_bytes().starts_with(start));
    if !is_known {
        return Answer::of_next();
    }
    if settings::is_off() {
        return boundary::caught(Answer::of_next, || look_up(handle, name, caller));
    }
    if boundary::bypassed() {
        return Answer::of_next();
    }
    entry::serve(Answer::of_next, || look_up(handle, name, caller))
}

/// Looks up a function of CUDA or NCCL: this library's, or with `GPUSHIM=off` the one that would be
/// found without this library.
fn look_up(handle: *mut c_void, name: &CStr, caller: *const c_void) -> Answer {
    let ours = export(name);
    if ours.is_null() {
        return Answer::of_next();
    }
    let is_relative = is_relative(handle);
    // In the global scope this library's functions are the first, except for functions of the
    // program itself.
    let found = match is_relative {
        true => linker::symbol(libc::RTLD_DEFAULT, name),
        false => linker::symbol(handle, name),
    };
    if ptr::eq(found, ours) {
        if is_only_ours(name, ours, caller) {
            return Answer::of(ptr::null());
        }
        let next = linker::next_symbol(name);
        let passes = settings::is_off() && handle != libc::RTLD_NEXT && !next.is_null();
        return if passes {
            Answer::of(next)
        } else {
            Answer::of_next()
        };
    }
    if is_relative || settings::is_off() {
        return Answer::of_next();
    }
    let of_driver = driver::substitute(found);
    let substitute = if of_driver.is_null() {
        nccl::substitute(name, found)
    } else {
        of_driver
    };
    if substitute.is_null() {
        return Answer::of_next();
    }
    Answer::of(substitute)
}

/// True for a handle whose meaning depends on the caller. Only the next `dlsym` can look it up for
/// that caller.
fn is_relative(handle: *mut c_void) -> bool {
    handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT
}

/// Looks up a function of NVML, without any other effect.
fn look_up_in_nvml(handle: *mut c_void, name: &CStr) -> Answer {
    if is_relative(handle) || settings::is_off() || boundary::bypassed() {
        return Answer::of_next();
    }
    let found = nvml::substitute(handle, name);
    match found.is_null() {
        true => Answer::of_next(),
        false => Answer::of(found),
    }
}

/// Returns this library's function of a name of CUDA or NCCL; null if there is none.
fn export(name: &CStr) -> *const c_void {
    let of_driver = driver::ours(name);
    if !of_driver.is_null() {
        return of_driver;
    }
    let mut of_runtime = runtime::exports();
    of_runtime
        .find(|(known, _)| *known == name)
        .map_or_else(|| nccl::export(name), |(_, ours)| ours)
}

/// True if a function is in the process only as this library's export: without CUDA or NCCL it must
/// not be found. The caller's `dlerror` then has the error.
fn is_only_ours(name: &CStr, ours: *const c_void, caller: *const c_void) -> bool {
    let is_another = |found: *mut c_void| !found.is_null() && !ptr::eq(found, ours);
    if is_another(linker::next_symbol(name)) {
        return false;
    }
    // A library that was loaded with RTLD_LOCAL also finds functions of its own dependencies.
    if let Some(library) = linker::handle_of(caller) {
        let of_caller = linker::symbol(library, name);
        if let Some(close) = linker::next_dlclose() {
            // SAFETY: the handle is not used any more, and the caller keeps its own library.
            unsafe { close(library) };
        }
        if is_another(of_caller) {
            return false;
        }
    }
    // Looked up again, so that `dlerror` has the error.
    linker::next_symbol(name).is_null()
}

extern "C" fn look_at_dlopen(file: *const c_char, mode: c_int) {
    linker::find_next();
    // Such a library finds its own dependencies before this library: its calls may never reach a
    // hook.
    if mode & libc::RTLD_DEEPBIND != 0 && !file.is_null() && !boundary::bypassed() {
        entry::serve(
            || (),
            || {
                // SAFETY: dlopen is given C strings.
                let file = unsafe { CStr::from_ptr(file) };
                crate::cuda::context::distrust();
                trace::fact("deepbind", &file.to_string_lossy());
            },
        );
    }
}
