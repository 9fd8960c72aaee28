//! The PyTorch lens: its allocator announces every tensor through two functions of libc10.so that the
//! dynamic linker binds. We listen and pass the call on.
//!
//! `c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, c10::Device)` and
//! `c10::reportOutOfMemoryToProfiler(int64_t, size_t, size_t, c10::Device)`; PyTorch 1.12 and before
//! declare the two totals as `int64_t`, which gives other names to the same registers.

use std::arch::naked_asm;
use std::ffi::{CStr, c_void};

use gpushim_core::config::Lens;
use gpushim_core::trace::Kind;

use super::caller::Interposed;
use crate::{process, recorder};

/// `c10::Device`: a type and an index, a byte each.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TorchDevice {
    kind: i8,
    index: i8,
}

/// `c10::DeviceType::CUDA`.
const CUDA: i8 = 1;

type Usage = unsafe extern "C" fn(*mut c_void, i64, usize, usize, TorchDevice);
type OutOfMemory = unsafe extern "C" fn(i64, usize, usize, TorchDevice);

const USAGE: &CStr = c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
const USAGE_SIGNED: &CStr = c"_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE";
const OUT_OF_MEMORY: &CStr = c"_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";
const OUT_OF_MEMORY_SIGNED: &CStr = c"_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE";

static REAL_USAGE: Interposed = Interposed::new(USAGE);
static REAL_USAGE_SIGNED: Interposed = Interposed::new(USAGE_SIGNED);
static REAL_OUT_OF_MEMORY: Interposed = Interposed::new(OUT_OF_MEMORY);
static REAL_OUT_OF_MEMORY_SIGNED: Interposed = Interposed::new(OUT_OF_MEMORY_SIGNED);

/// A tensor came or went (PyTorch 1.13 and later).
///
/// # Safety
/// Called by PyTorch only.
#[unsafe(naked)]
#[unsafe(export_name = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")]
pub unsafe extern "C" fn report_usage() {
    naked_asm!(
        ".cfi_startproc",
        "mov r9, [rsp]",
        "jmp {f}",
        ".cfi_endproc",
        f = sym usage,
    )
}

/// A tensor came or went (PyTorch up to 1.12).
///
/// # Safety
/// Called by PyTorch only.
#[unsafe(naked)]
#[unsafe(export_name = "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE")]
pub unsafe extern "C" fn report_usage_signed() {
    naked_asm!(
        ".cfi_startproc",
        "mov r9, [rsp]",
        "jmp {f}",
        ".cfi_endproc",
        f = sym usage_signed,
    )
}

/// A tensor could not be made (PyTorch 1.13 and later).
///
/// # Safety
/// Called by PyTorch only.
#[unsafe(naked)]
#[unsafe(export_name = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE")]
pub unsafe extern "C" fn report_out_of_memory() {
    naked_asm!(
        ".cfi_startproc",
        "mov r8, [rsp]",
        "jmp {f}",
        ".cfi_endproc",
        f = sym out_of_memory,
    )
}

/// A tensor could not be made (PyTorch up to 1.12).
///
/// # Safety
/// Called by PyTorch only.
#[unsafe(naked)]
#[unsafe(export_name = "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE")]
pub unsafe extern "C" fn report_out_of_memory_signed() {
    naked_asm!(
        ".cfi_startproc",
        "mov r8, [rsp]",
        "jmp {f}",
        ".cfi_endproc",
        f = sym out_of_memory_signed,
    )
}

unsafe extern "C" fn usage(
    address: *mut c_void,
    size: i64,
    allocated: usize,
    reserved: usize,
    device: TorchDevice,
    caller: *const c_void,
) {
    see_usage(address, size, allocated, reserved, device);
    // SAFETY: the caller's arguments.
    unsafe {
        pass_usage(
            &REAL_USAGE,
            address,
            size,
            allocated,
            reserved,
            device,
            caller,
        )
    };
}

unsafe extern "C" fn usage_signed(
    address: *mut c_void,
    size: i64,
    allocated: usize,
    reserved: usize,
    device: TorchDevice,
    caller: *const c_void,
) {
    see_usage(address, size, allocated, reserved, device);
    // SAFETY: the caller's arguments.
    unsafe {
        pass_usage(
            &REAL_USAGE_SIGNED,
            address,
            size,
            allocated,
            reserved,
            device,
            caller,
        )
    };
}

unsafe extern "C" fn out_of_memory(
    size: i64,
    allocated: usize,
    reserved: usize,
    device: TorchDevice,
    caller: *const c_void,
) {
    see_out_of_memory(size, allocated, reserved, device);
    // SAFETY: the caller's arguments.
    unsafe {
        pass_oom(
            &REAL_OUT_OF_MEMORY,
            size,
            allocated,
            reserved,
            device,
            caller,
        )
    };
}

unsafe extern "C" fn out_of_memory_signed(
    size: i64,
    allocated: usize,
    reserved: usize,
    device: TorchDevice,
    caller: *const c_void,
) {
    see_out_of_memory(size, allocated, reserved, device);
    // SAFETY: the caller's arguments.
    unsafe {
        pass_oom(
            &REAL_OUT_OF_MEMORY_SIGNED,
            size,
            allocated,
            reserved,
            device,
            caller,
        )
    };
}

/// # Safety
/// `real` stands for a function of the type [`Usage`].
unsafe fn pass_usage(
    real: &Interposed,
    address: *mut c_void,
    size: i64,
    allocated: usize,
    reserved: usize,
    device: TorchDevice,
    caller: *const c_void,
) {
    if let Some(real) = real.real(caller) {
        // SAFETY: the type is the caller's promise.
        let f = unsafe { std::mem::transmute::<*const c_void, Usage>(real.address) };
        // SAFETY: the host's own arguments, unchanged.
        unsafe { f(address, size, allocated, reserved, device) };
    }
}

/// # Safety
/// `real` stands for a function of the type [`OutOfMemory`].
unsafe fn pass_oom(
    real: &Interposed,
    size: i64,
    allocated: usize,
    reserved: usize,
    device: TorchDevice,
    caller: *const c_void,
) {
    if let Some(real) = real.real(caller) {
        // SAFETY: the type is the caller's promise.
        let f = unsafe { std::mem::transmute::<*const c_void, OutOfMemory>(real.address) };
        // SAFETY: the host's own arguments, unchanged.
        unsafe { f(size, allocated, reserved, device) };
    }
}

/// Whether what PyTorch says of this device goes into the trace.
fn listens(device: TorchDevice) -> bool {
    device.kind == CUDA && process::config().lens == Lens::Auto
}

fn see_usage(address: *mut c_void, size: i64, allocated: usize, reserved: usize, on: TorchDevice) {
    process::boundary(
        || (),
        || {
            if listens(on) {
                let kind = if size < 0 {
                    Kind::TensorFree
                } else {
                    Kind::TensorAlloc
                };
                recorder::tensor(
                    kind,
                    on.index as u8,
                    address as u64,
                    size.unsigned_abs(),
                    allocated as u64,
                    reserved as u64,
                );
            }
        },
    );
}

fn see_out_of_memory(size: i64, allocated: usize, reserved: usize, on: TorchDevice) {
    process::boundary(
        || (),
        || {
            if listens(on) {
                let kind = Kind::TensorOutOfMemory;
                let size = size.unsigned_abs();
                recorder::tensor(
                    kind,
                    on.index as u8,
                    0,
                    size,
                    allocated as u64,
                    reserved as u64,
                );
            }
        },
    );
}
