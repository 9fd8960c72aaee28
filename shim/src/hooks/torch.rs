//! PyTorch's tensors: its allocator announces each by two functions of libc10.so that the dynamic
//! linker binds. The call is recorded and passed on. If PyTorch's segments are elastic, the
//! tensor's pages have memory when the call returns.
//!
//! The functions are `c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t,
//! c10::Device)` and `c10::reportOutOfMemoryToProfiler(int64_t, size_t, size_t, c10::Device)`.
//! PyTorch 1.12 and before declare the two totals as `int64_t`, which gives other names to the same
//! registers.

use std::arch::naked_asm;
use std::ffi::{CStr, c_void};

use gpushim_config::Announcements;
use gpushim_torch::device::{CUDA, Device};
use gpushim_trace::Kind;

use crate::base::own_time::ANNOUNCEMENTS;
use crate::base::{settings, thread};
use crate::hooks::caller::Interposed;
#[cfg(target_arch = "aarch64")]
use crate::hooks::door::register_of_arm;
use crate::hooks::{entry, torch_stream};
use crate::memory::elastic;
use crate::record::events;
use crate::record::shortages::{self, By};
use crate::record::tensor_streams::UNKNOWN;

/// Defines functions of PyTorch. Each evaluates the announcement, and then jumps to PyTorch's own
/// function with the stack and the registers of the caller. PyTorch's function may throw, and a
/// thread may end in it: no frame of this library is in the way then. The body gets the caller's
/// return address as one more argument in the named register. It returns the address to jump to,
/// null for none.
macro_rules! torch_functions {
    ($(
        $(#[$doc:meta])*
        fn $name:ident = $symbol:literal, $caller:tt,
        $body:ident: $see:ident($($arg:ident: $ty:ty),*);
    )*) => { $(
        extern "C" fn $body($($arg: $ty,)* caller: *const c_void) -> *const c_void {
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!($symbol, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("no name"),
            };
            static REAL: Interposed = Interposed::new(NAME);
            $see(caller, $($arg),*);
            REAL.real(caller).map_or(std::ptr::null(), |real| real.address)
        }

        $(#[$doc])*
        ///
        /// # Safety
        /// Only PyTorch may call it.
        #[unsafe(naked)]
        #[unsafe(export_name = $symbol)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-64]!",
                ".cfi_def_cfa_offset 64",
                ".cfi_offset x29, -64",
                ".cfi_offset x30, -56",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "str x4, [sp, #48]",
                concat!("mov ", register_of_arm!($caller), ", x30"),
                "bl {see}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldr x4, [sp, #48]",
                "ldp x29, x30, [sp], #64",
                ".cfi_def_cfa_offset 0",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "cbz x16, 2f",
                "br x16",
                "2:",
                "ret",
                ".cfi_endproc",
                see = sym $body,
            );
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                ".cfi_startproc",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                "push r8",
                ".cfi_adjust_cfa_offset 8",
                concat!("mov ", $caller, ", [rsp + 40]"),
                "call {see}",
                "pop r8",
                ".cfi_adjust_cfa_offset -8",
                "pop rcx",
                ".cfi_adjust_cfa_offset -8",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "test rax, rax",
                "jz 2f",
                "jmp rax",
                "2:",
                "ret",
                ".cfi_endproc",
                see = sym $body,
            )
        }
    )* };
}

torch_functions! {
    /// Announces the allocation or the free of a tensor (PyTorch 1.13 and later).
    fn report_usage = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", "r9",
        usage: see_usage(
            address: *mut c_void, size: i64, allocated: usize, reserved: usize, device: Device
        );
    /// Announces the allocation or the free of a tensor (PyTorch up to 1.12).
    fn report_usage_signed = "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE", "r9",
        usage_signed: see_usage_signed(
            address: *mut c_void, size: i64, allocated: usize, reserved: usize, device: Device
        );
    /// Announces a tensor that could not be allocated (PyTorch 1.13 and later).
    fn report_out_of_memory = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE", "r8",
        out_of_memory: see_out_of_memory(size: i64, allocated: usize, reserved: usize, device: Device);
    /// Announces a tensor that could not be allocated (PyTorch up to 1.12).
    fn report_out_of_memory_signed = "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE", "r8",
        out_of_memory_signed: see_out_of_memory_signed(size: i64, allocated: usize, reserved: usize, device: Device);
}

/// True if PyTorch's announcements for this device go into the trace.
fn listens(device: Device) -> bool {
    device.kind == CUDA && settings::config().tensors == Announcements::Auto
}

/// True if PyTorch's announcements for a device go to its segments.
fn is_followed(device: Device) -> bool {
    device.kind == CUDA && elastic::any()
}

/// Passes an announcement to the segments of a device. `allocated`: the sum of live bytes after the
/// call.
#[inline]
fn follow(address: u64, size: i64, allocated: u64, on: Device, stream: u8) {
    // Set by an event that PyTorch recorded for this tensor, or that other code recorded for any
    // reason.
    let has_recorded = thread::with(|thread| thread.has_recorded.replace(false));
    let (device, bytes) = (on.index.into(), size.unsigned_abs());
    let stream = Some(stream).filter(|stream| *stream != UNKNOWN);
    match size {
        0 => {}
        ..0 => elastic::freed(device, address, bytes, allocated, has_recorded),
        _ => elastic::allocated(device, address, bytes, allocated, stream),
    }
}

fn see_usage(
    caller: *const c_void,
    address: *mut c_void,
    size: i64,
    allocated: usize,
    reserved: usize,
    on: Device,
) {
    let stream = || torch_stream::of_new_tensor(on.index, caller);
    see_usage_on(stream, address, size, allocated, reserved, on);
}

/// Handles an announcement of PyTorch up to 1.12, without a stream.
fn see_usage_signed(
    _caller: *const c_void,
    address: *mut c_void,
    size: i64,
    allocated: usize,
    reserved: usize,
    on: Device,
) {
    see_usage_on(|| UNKNOWN, address, size, allocated, reserved, on);
}

/// Handles an announcement. `stream` is called only for a new tensor of interest.
#[inline(always)]
fn see_usage_on(
    stream: impl FnOnce() -> u8,
    address: *mut c_void,
    size: i64,
    allocated: usize,
    reserved: usize,
    on: Device,
) {
    let announced = |begun| {
        let (is_followed, listens) = (is_followed(on), listens(on));
        // A free that is only recorded has no work to do meanwhile.
        if listens && (size > 0 || is_followed) {
            events::fetch_tensor(on.index as u8, address as u64);
        }
        let stream = if size > 0 && (is_followed || listens) {
            stream()
        } else {
            UNKNOWN
        };
        if is_followed {
            follow(address as u64, size, allocated as u64, on, stream);
        }
        if listens {
            let kind = if size < 0 {
                Kind::TensorFree
            } else {
                Kind::TensorAlloc
            };
            events::tensor(
                kind,
                (on.index as u8, stream),
                address as u64,
                size.unsigned_abs(),
                allocated as u64,
                reserved as u64,
                // Segments may have waited for memory.
                Some(begun).filter(|_| !is_followed),
            );
        }
    };
    entry::serve(|| (), || ANNOUNCEMENTS.measure(announced));
}

fn see_out_of_memory(
    caller: *const c_void,
    size: i64,
    allocated: usize,
    reserved: usize,
    on: Device,
) {
    let stream = || torch_stream::of_new_tensor(on.index, caller);
    see_out_of_memory_on(stream, size, allocated, reserved, on);
}

fn see_out_of_memory_signed(
    _caller: *const c_void,
    size: i64,
    allocated: usize,
    reserved: usize,
    on: Device,
) {
    see_out_of_memory_on(|| UNKNOWN, size, allocated, reserved, on);
}

fn see_out_of_memory_on(
    stream: impl FnOnce() -> u8,
    size: i64,
    allocated: usize,
    reserved: usize,
    on: Device,
) {
    let announced = || {
        if listens(on) {
            let on = (on.index as u8, stream());
            let size = size.unsigned_abs();
            events::tensor_out_of_memory(on, size, allocated as u64, reserved as u64);
            shortages::note(By::Framework);
        }
    };
    entry::serve(|| (), announced);
}
