//! Tests of virtual memory management through the C interface, on two devices, and of findings for
//! its misuse.

extern crate cuda;

use std::sync::{Mutex, MutexGuard};

macro_rules! driver {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        unsafe extern "C" { $(safe fn $name($($arg: $type),*) -> u32;)* }
    };
}

mod aliases;

driver! {
    cuInit(flags: u32);
    cuCtxCreate_v2(context: &mut u64, flags: u32, device: i32);
    cuCtxDestroy_v2(context: u64);
    cuCtxSynchronize();
    cuMemGetInfo_v2(free: &mut usize, total: &mut usize);
    cuMemAlloc_v2(address: &mut u64, bytes: usize);
    cuMemFree_v2(address: u64);
    cuMemcpyHtoD_v2(to: u64, from: *const u8, bytes: usize);
    cuMemcpyDtoH_v2(to: *mut u8, from: u64, bytes: usize);
    cuMemsetD8Async(address: u64, value: u8, count: usize, stream: u64);
    cuStreamCreate(stream: &mut u64, flags: u32);
    cuStreamSynchronize(stream: u64);
    cuStreamWaitEvent(stream: u64, event: u64, flags: u32);
    cuStreamBeginCapture_v2(stream: u64, mode: u32);
    cuStreamEndCapture(stream: u64, graph: &mut u64);
    cuStreamIsCapturing(stream: u64, status: &mut u32);
    cuGraphInstantiateWithFlags(exec: &mut u64, graph: u64, flags: u64);
    cuEventCreate(event: &mut u64, flags: u32);
    cuEventRecord(event: u64, stream: u64);
    cuMemAddressReserve(address: &mut u64, size: usize, alignment: usize, wished: u64, flags: u64);
    cuMemAddressFree(address: u64, size: usize);
    cuMemCreate(handle: &mut u64, size: usize, prop: &Prop, flags: u64);
    cuMemRelease(handle: u64);
    cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64);
    cuMemUnmap(address: u64, size: usize);
    cuMemSetAccess(address: u64, size: usize, access: &Access, count: usize);
    cuMemExportToShareableHandle(shared: &mut i32, handle: u64, kind: u32, flags: u64);
    cuImportExternalMemory(memory: &mut u64, wanted: &External);
    cuExternalMemoryGetMappedBuffer(address: &mut u64, memory: u64, wanted: &Buffer);
    cuDestroyExternalMemory(memory: u64);
    standin_launch(stream: u64, duration: u64, count: u32, ranges: &Range);
}

unsafe extern "C" {
    safe fn standin_findings() -> u64;
}

#[repr(C)]
struct Range {
    address: u64,
    bytes: u64,
    writes: u32,
}

/// Properties of memory on a device (`CUmemAllocationProp`).
#[repr(C)]
struct Prop {
    kind: u32,
    handles: u32,
    location: [u32; 2],
    rest: [u64; 2],
}

/// Access of a device to memory (`CUmemAccessDesc`).
#[repr(C)]
struct Access {
    location: [u32; 2],
    flags: u32,
}

/// Import of memory by a file descriptor (`CUDA_EXTERNAL_MEMORY_HANDLE_DESC`).
#[repr(C)]
struct External {
    kind: u32,
    descriptor: i64,
    unused: u64,
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

/// Part of imported memory to map (`CUDA_EXTERNAL_MEMORY_BUFFER_DESC`).
#[repr(C)]
struct Buffer {
    offset: u64,
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

const PROP: Prop = Prop {
    kind: 1,
    handles: 0,
    location: [1, 0],
    rest: [0; 2],
};
const READ: u32 = 1;
const BOTH: u32 = 3;
const PAGE: usize = 2 << 20;
const STEP: u64 = PAGE as u64;
/// Duration in nanoseconds that is longer than any check of a test.
const LONG: u64 = 300_000_000;
const NON_BLOCKING: u32 = 1;

/// Turn of one test, in a context of its own that is destroyed afterwards.
struct Turn {
    context: u64,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    fn take() -> Turn {
        static TURNS: Mutex<()> = Mutex::new(());
        let turn = TURNS
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // SAFETY: other tests wait for their turn, and the driver reads it under its first call.
        unsafe { std::env::set_var("STANDIN_DEVICES", "2") };
        assert_eq!(cuInit(0), 0);
        Turn {
            context: make(|context| cuCtxCreate_v2(context, 0, 0)),
            _turn: turn,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        cuCtxSynchronize();
        cuCtxDestroy_v2(self.context);
    }
}

fn make(call: impl FnOnce(&mut u64) -> u32) -> u64 {
    let mut made = 0;
    assert_eq!(call(&mut made), 0);
    made
}

fn stream() -> u64 {
    make(|stream| cuStreamCreate(stream, NON_BLOCKING))
}

fn touch(stream: u64, duration: u64, address: u64, bytes: usize, writes: bool) {
    let range = Range {
        address,
        bytes: bytes as u64,
        writes: writes.into(),
    };
    assert_eq!(standin_launch(stream, duration, 1, &range), 0);
}

fn kernel(stream: u64, duration: u64, address: u64, bytes: usize) {
    touch(stream, duration, address, bytes, true);
}

/// Orders later work on the second stream after the work on the first so far.
fn order(first: u64, second: u64) {
    let event = make(|event| cuEventCreate(event, 2));
    assert_eq!(cuEventRecord(event, first), 0);
    assert_eq!(cuStreamWaitEvent(second, event, 0), 0);
}

fn available() -> usize {
    let (mut free, mut total) = (0, 0);
    assert_eq!(cuMemGetInfo_v2(&mut free, &mut total), 0);
    free
}

/// Returns the number of findings that a body causes.
fn findings(body: impl FnOnce()) -> u64 {
    let before = standin_findings();
    body();
    standin_findings() - before
}

fn reserve(pages: usize) -> u64 {
    make(|base| cuMemAddressReserve(base, pages * PAGE, 0, 0, 0))
}

fn create() -> u64 {
    make(|handle| cuMemCreate(handle, PAGE, &PROP, 0))
}

fn access(address: u64, pages: usize, device: u32, flags: u32) {
    let location = [1, device];
    let wanted = Access { location, flags };
    assert_eq!(cuMemSetAccess(address, pages * PAGE, &wanted, 1), 0);
}

fn map(address: u64, handle: u64) {
    assert_eq!(cuMemMap(address, PAGE, 0, handle, 0), 0);
    access(address, 1, 0, BOTH);
}

fn unmap(address: u64, pages: usize) {
    assert_eq!(cuMemUnmap(address, pages * PAGE), 0);
}

#[test]
fn contents_move_with_the_handle() {
    let _turn = Turn::take();
    let before = available();
    let base = reserve(4);
    assert_eq!(available(), before);
    let handle = create();
    assert_eq!(available(), before - PAGE);
    map(base, handle);
    let mut out = [0u8; 4];
    assert_eq!(cuMemcpyHtoD_v2(base + 100, [1, 2, 3, 4].as_ptr(), 4), 0);
    assert_eq!(cuMemUnmap(base, PAGE), 0);
    map(base + 2 * PAGE as u64, handle);
    assert_eq!(
        cuMemcpyDtoH_v2(out.as_mut_ptr(), base + 2 * PAGE as u64 + 100, 4),
        0
    );
    assert_eq!(out, [1, 2, 3, 4]);
    // The memory exists as long as it is mapped.
    assert_eq!(cuMemRelease(handle), 0);
    assert_eq!(available(), before - PAGE);
    assert_eq!(cuMemUnmap(base + 2 * PAGE as u64, PAGE), 0);
    assert_eq!(available(), before);
    assert_eq!(cuMemAddressFree(base, 4 * PAGE), 0);
}

#[test]
fn new_handles_hold_zeros() {
    let _turn = Turn::take();
    let base = reserve(1);
    for round in 0..3u8 {
        let handle = create();
        map(base, handle);
        let mut out = [9u8; 2];
        assert_eq!(cuMemcpyDtoH_v2(out.as_mut_ptr(), base + 5, 2), 0);
        assert_eq!(out, [0, 0], "round {round}");
        assert_eq!(cuMemcpyHtoD_v2(base + 5, [round + 1, 7].as_ptr(), 2), 0);
        assert_eq!(cuMemUnmap(base, PAGE), 0);
        assert_eq!(cuMemRelease(handle), 0);
    }
    assert_eq!(cuMemAddressFree(base, PAGE), 0);
}

#[test]
fn unmapping_under_work_is_found() {
    let _turn = Turn::take();
    let side = stream();
    let base = reserve(1);
    let handle = create();
    map(base, handle);
    kernel(side, LONG, base, 4096);
    assert_eq!(findings(|| assert_eq!(cuMemUnmap(base, PAGE), 0)), 1);
    cuCtxSynchronize();
    map(base, handle);
    kernel(side, 1000, base, 4096);
    assert_eq!(cuStreamSynchronize(side), 0);
    assert_eq!(findings(|| assert_eq!(cuMemUnmap(base, PAGE), 0)), 0);
    assert_eq!(findings(|| kernel(side, 1000, base, 4096)), 1);
    cuMemRelease(handle);
    cuMemAddressFree(base, PAGE);
}

#[test]
fn mapped_memory_without_access_is_not_for_kernels() {
    let _turn = Turn::take();
    let base = reserve(1);
    let handle = create();
    assert_eq!(cuMemMap(base, PAGE, 0, handle, 0), 0);
    let side = stream();
    assert_eq!(findings(|| kernel(side, 1000, base, 4096)), 1);
    access(base, 1, 0, BOTH);
    assert_eq!(findings(|| kernel(side, 1000, base, 4096)), 0);
    cuCtxSynchronize();
    cuMemUnmap(base, PAGE);
    cuMemRelease(handle);
    cuMemAddressFree(base, PAGE);
}

#[test]
fn every_mapping_that_work_touches_must_be_open_to_its_device() {
    let turn = Turn::take();
    let near = stream();
    let (base, first, second) = (reserve(3), create(), create());
    map(base, first);
    assert_eq!(cuMemMap(base + STEP, PAGE, 0, second, 0), 0);
    let across = || touch(near, 0, base + STEP - 8, 16, false);
    assert_eq!(findings(across), 1, "no access to the second");
    let set = || cuMemsetD8Async(base + STEP - 8, 0, 16, near);
    assert_eq!(findings(|| assert_eq!(set(), 1)), 1, "nor for a memset");
    access(base + STEP, 1, 0, READ);
    assert_eq!(findings(across), 0);
    assert_eq!(findings(|| assert_eq!(set(), 1)), 1, "not for writing");
    access(base + STEP, 1, 0, BOTH);
    assert_eq!(findings(|| assert_eq!(set(), 0)), 0);
    let beyond = || touch(near, 0, base + 2 * STEP - 8, 16, false);
    assert_eq!(findings(beyond), 1, "into the hole behind");
    assert_eq!(cuStreamSynchronize(near), 0);
    // The other device needs access of its own.
    let context = make(|context| cuCtxCreate_v2(context, 0, 1));
    let far = stream();
    let across = || touch(far, 0, base + STEP - 8, 16, true);
    assert_eq!(findings(across), 1, "no leave");
    access(base, 1, 1, BOTH);
    assert_eq!(findings(across), 1, "for the first only");
    access(base + STEP, 1, 1, BOTH);
    assert_eq!(findings(across), 0);
    // A thread that unmaps must have waited for both.
    assert_eq!(findings(|| unmap(base, 2)), 2);
    cuCtxSynchronize();
    assert_eq!(cuCtxDestroy_v2(context), 0);
    assert_ne!(turn.context, context);
    assert_eq!((cuMemRelease(first), cuMemRelease(second)), (0, 0));
    assert_eq!(cuMemAddressFree(base, 3 * PAGE), 0);
}

#[test]
fn an_access_does_not_run_on_into_memory_that_is_not_mapped() {
    let _turn = Turn::take();
    let side = stream();
    let (base, handle) = (reserve(2), create());
    map(base, handle);
    assert_eq!(cuMemAddressFree(base, 2 * PAGE), 1, "mapped");
    unmap(base, 1);
    assert_eq!(cuMemAddressFree(base, 2 * PAGE), 0);
    // The same addresses, half of them a reservation and half an allocation.
    assert_eq!(
        make(|at| cuMemAddressReserve(at, PAGE, 0, base, 0)),
        base,
        "free again"
    );
    map(base, handle);
    let blocks: Vec<u64> = (0..4)
        .map(|_| make(|block| cuMemAlloc_v2(block, PAGE)))
        .collect();
    assert!(blocks.contains(&(base + STEP)), "one is next to it");
    assert_eq!(findings(|| kernel(side, 0, base + STEP - 8, 16)), 1);
    cuCtxSynchronize();
    for block in blocks {
        assert_eq!(cuMemFree_v2(block), 0);
    }
    unmap(base, 1);
    cuMemRelease(handle);
    cuMemAddressFree(base, PAGE);
}

#[test]
fn mapping_is_legal_while_a_stream_captures() {
    let _turn = Turn::take();
    let (captures, other) = (stream(), stream());
    let event = make(|event| cuEventCreate(event, 2));
    for mode in 0..3 {
        let (mut status, mut graph) = (0, 0);
        assert_eq!(cuStreamBeginCapture_v2(captures, mode), 0);
        let (base, handle) = (reserve(1), create());
        map(base, handle);
        assert_eq!(cuEventRecord(event, other), 0);
        unmap(base, 1);
        assert_eq!(
            (cuMemRelease(handle), cuMemAddressFree(base, PAGE)),
            (0, 0),
            "mode {mode}"
        );
        assert_eq!(cuStreamIsCapturing(captures, &mut status), 0);
        assert_eq!(
            (status, cuStreamEndCapture(captures, &mut graph)),
            (1, 0),
            "mode {mode}"
        );
    }
}
