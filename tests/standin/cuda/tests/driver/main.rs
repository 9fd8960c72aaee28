//! Tests of the stand-in through its C interface, as a program uses it.
//!
//! The state of the driver belongs to the process: the tests take turns, each in a context of its
//! own.

extern crate cuda;

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

macro_rules! driver {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        unsafe extern "C" { $(safe fn $name($($arg: $type),*) -> u32;)* }
    };
}

mod captures;
mod order;

driver! {
    cuInit(flags: u32);
    cuGetProcAddress_v2(name: *const i8, address: &mut usize, version: i32, flags: u64, status: &mut u32);
    cuCtxCreate_v2(context: &mut u64, flags: u32, device: i32);
    cuCtxDestroy_v2(context: u64);
    cuCtxSetCurrent(context: u64);
    cuCtxSynchronize();
    cuCtxRecordEvent(context: u64, event: u64);
    cuCtxWaitEvent(context: u64, event: u64);
    cuMemGetInfo_v2(free: &mut usize, total: &mut usize);
    cuMemAlloc_v2(address: &mut u64, bytes: usize);
    cuMemFree_v2(address: u64);
    cuMemAllocHost_v2(address: &mut u64, bytes: usize);
    cuMemFreeHost(address: u64);
    cuMemGetAddressRange_v2(base: &mut u64, size: &mut usize, address: u64);
    cuMemcpyHtoD_v2(dst: u64, src: *const u8, bytes: usize);
    cuMemcpyDtoH_v2(dst: *mut u8, src: u64, bytes: usize);
    cuMemcpyDtoDAsync_v2(dst: u64, src: u64, bytes: usize, stream: u64);
    cuMemcpyHtoDAsync_v2(dst: u64, src: u64, bytes: usize, stream: u64);
    cuMemsetD8Async(dst: u64, value: u8, count: usize, stream: u64);
    cuMemsetD32_v2(dst: u64, value: u32, count: usize);
    cuStreamCreate(stream: &mut u64, flags: u32);
    cuStreamDestroy_v2(stream: u64);
    cuStreamQuery(stream: u64);
    cuStreamSynchronize(stream: u64);
    cuStreamWaitEvent(stream: u64, event: u64, flags: u32);
    cuEventCreate(event: &mut u64, flags: u32);
    cuEventRecord(event: u64, stream: u64);
    cuEventQuery(event: u64);
    cuEventSynchronize(event: u64);
    cuEventElapsedTime(milliseconds: &mut f32, from: u64, until: u64);
    cuLaunchHostFunc(stream: u64, function: extern "C" fn(*mut c_void), data: *mut c_void);
    cuStreamBeginCapture_v2(stream: u64, mode: u32);
    cuStreamEndCapture(stream: u64, graph: &mut u64);
    cuStreamIsCapturing(stream: u64, status: &mut u32);
    cuThreadExchangeStreamCaptureMode(mode: &mut u32);
    cuGraphInstantiateWithFlags(exec: &mut u64, graph: u64, flags: u64);
    cuGraphLaunch(exec: u64, stream: u64);
    cuGraphExecDestroy(exec: u64);
    cuGraphDestroy(graph: u64);
    cuGraphCreate(graph: &mut u64, flags: u32);
    cuGraphAddMemAllocNode(node: &mut u64, graph: u64, after: *const u64, count: usize, params: &mut AllocNode);
    cuGraphAddMemFreeNode(node: &mut u64, graph: u64, after: *const u64, count: usize, address: u64);
    cuGraphExecUpdate_v2(exec: u64, graph: u64, info: &mut [u64; 3]);
    cuDeviceGetGraphMemAttribute(device: i32, attribute: u32, value: &mut u64);
    cuDeviceGraphMemTrim(device: i32);
    cuGraphGetNodes(graph: u64, nodes: *mut u64, count: &mut usize);
    standin_launch(stream: u64, duration: u64, count: u32, ranges: *const Range);
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

/// Allocation node parameters (`CUDA_MEM_ALLOC_NODE_PARAMS_v1`), with most fields unused.
#[repr(C)]
struct AllocNode {
    kind: u32,
    handles: u32,
    location: [i32; 2],
    rest: [u64; 9],
    access: [u64; 2],
    bytes: usize,
    address: u64,
}

const NON_BLOCKING: u32 = 1;
const MS: u64 = 1_000_000;

static TURN: Mutex<()> = Mutex::new(());

/// Context of the test, and the number of findings at the last check.
struct Test {
    context: u64,
    before: u64,
    _turn: MutexGuard<'static, ()>,
}

impl Test {
    fn new() -> Test {
        let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        assert_eq!(cuInit(0), 0);
        let context = make(|context| cuCtxCreate_v2(context, 0, 0));
        Test {
            context,
            before: standin_findings(),
            _turn: turn,
        }
    }

    /// Returns the number of findings since the last call.
    fn findings(&mut self) -> u64 {
        let now = standin_findings();
        now - std::mem::replace(&mut self.before, now)
    }
}

impl Drop for Test {
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

fn alloc(bytes: usize) -> u64 {
    make(|address| cuMemAlloc_v2(address, bytes))
}

fn stream(flags: u32) -> u64 {
    make(|stream| cuStreamCreate(stream, flags))
}

fn event() -> u64 {
    make(|event| cuEventCreate(event, 0))
}

fn kernel(stream: u64, duration: u64, address: u64, bytes: u64, writes: bool) -> u32 {
    let writes = writes.into();
    standin_launch(
        stream,
        duration,
        1,
        &Range {
            address,
            bytes,
            writes,
        },
    )
}

fn used() -> usize {
    let (mut free, mut total) = (0, 0);
    assert_eq!(cuMemGetInfo_v2(&mut free, &mut total), 0);
    total - free
}

fn is_capturing(stream: u64) -> u32 {
    let mut status = 9;
    assert_eq!(cuStreamIsCapturing(stream, &mut status), 0);
    status
}

#[test]
fn memory_is_real_and_accounted_for() {
    let _test = Test::new();
    let before = used();
    let (a, b) = (alloc(1), alloc(1));
    assert_eq!(b - a, 512);
    assert_eq!(used() - before, 2 << 20);
    let big = alloc((2 << 20) + 1);
    assert_eq!(used() - before, 6 << 20);
    let (mut base, mut size) = (0, 0);
    assert_eq!(cuMemGetAddressRange_v2(&mut base, &mut size, big + 77), 0);
    assert_eq!((base, size), (big, (2 << 20) + 1));
    assert_eq!(cuMemGetAddressRange_v2(&mut base, &mut size, 0x10), 500);
    let (mut bytes, mut back) = ([7u8; 1000], [0u8; 1000]);
    bytes[999] = 9;
    assert_eq!(cuMemcpyHtoD_v2(big, bytes.as_ptr(), 1000), 0);
    assert_eq!(cuMemcpyDtoH_v2(back.as_mut_ptr(), big, 1000), 0);
    assert_eq!(bytes, back);
    let mut too_much = 0;
    assert_eq!(cuMemAlloc_v2(&mut too_much, 1 << 40), 2);
    assert_eq!(cuMemAlloc_v2(&mut too_much, 0), 1);
    for address in [a, b, big, 0] {
        assert_eq!(cuMemFree_v2(address), 0);
    }
    assert_eq!(used(), before);
}

#[test]
fn all_of_the_memory_can_be_had_and_no_more() {
    let _test = Test::new();
    let (mut free, mut total) = (0, 0);
    assert_eq!(cuMemGetInfo_v2(&mut free, &mut total), 0);
    let all = alloc(free);
    let mut one = 0;
    assert_eq!(cuMemAlloc_v2(&mut one, 1), 2);
    assert_eq!(cuMemFree_v2(all), 0);
    assert_eq!(cuMemAlloc_v2(&mut one, 1), 0);
    assert_eq!(cuMemFree_v2(one), 0);
}

#[test]
fn misuse_of_addresses_is_found() {
    let mut test = Test::new();
    let a = alloc(1000);
    let mut byte = 0u8;
    assert_eq!(cuMemcpyDtoH_v2(&mut byte, a + 999, 1), 0);
    assert_eq!(test.findings(), 0);
    assert_eq!(cuMemcpyDtoH_v2(&mut byte, a + 1000, 1), 1, "beyond the end");
    assert_eq!(test.findings(), 1);
    assert_eq!(cuMemsetD32_v2(a, 1, 251), 1, "across the end");
    assert_eq!(test.findings(), 1);
    assert_eq!(cuMemFree_v2(a + 512), 1, "not a base");
    assert_eq!(test.findings(), 0);
    assert_eq!(cuMemFree_v2(a), 0);
    assert_eq!(kernel(0, 0, a, 8, false), 0);
    assert_eq!(test.findings(), 1, "use after free");
    assert_eq!(cuMemcpyDtoH_v2(&mut byte, a, 1), 1);
    assert_eq!(test.findings(), 1, "copy after free");
    assert_eq!(cuMemFree_v2(a), 1);
    assert_eq!(test.findings(), 1, "double free");
    assert_eq!(cuMemFree_v2(0x1234), 1);
    assert_eq!(test.findings(), 0, "an address that was never ours");
}

#[test]
fn a_destroyed_context_under_running_work_is_found() {
    for (duration, findings) in [(20 * MS, 1), (0, 0)] {
        let mut test = Test::new();
        let inner = make(|context| cuCtxCreate_v2(context, 0, 0));
        let block = alloc(64);
        assert_eq!(kernel(0, duration, block, 64, true), 0);
        assert_eq!(cuCtxDestroy_v2(inner), 0);
        assert_eq!(test.findings(), findings);
        assert_eq!(cuMemFree_v2(block), 1, "gone with its context");
    }
}

#[test]
fn proc_addresses_are_the_exports() {
    fn look_up(name: &CStr, version: i32, flags: u64) -> (u32, usize, u32) {
        let (mut address, mut status) = (1, 9);
        let code = cuGetProcAddress_v2(name.as_ptr(), &mut address, version, flags, &mut status);
        (code, address, status)
    }
    let alloc = cuMemAlloc_v2 as *const () as usize;
    assert_eq!(look_up(c"cuMemAlloc", 13000, 0), (0, alloc, 0));
    assert_eq!(look_up(c"cuMemAlloc", 13000, 2), (0, alloc, 0));
    assert_eq!(
        look_up(c"cuMemAlloc", 2000, 0),
        (0, 0, 2),
        "told by the status"
    );
    assert_eq!(look_up(c"cuNoSuchThing", 13000, 0), (0, 0, 1));
    let (_, legacy, _) = look_up(c"cuStreamQuery", 13000, 0);
    let (_, per_thread, _) = look_up(c"cuStreamQuery", 13000, 2);
    assert_eq!(legacy, cuStreamQuery as *const () as usize);
    assert_ne!(legacy, per_thread);
    let (code, itself, _) = look_up(c"cuGetProcAddress", 13000, 0);
    assert_eq!(code, 0);
    assert_eq!(itself, cuGetProcAddress_v2 as *const () as usize);
}

#[test]
fn streams_come_and_go() {
    let mut test = Test::new();
    let block = alloc(4096);
    for _ in 0..100 {
        let s = stream(NON_BLOCKING);
        assert_eq!(kernel(s, 0, block, 4096, true), 0);
        assert_eq!(cuStreamSynchronize(s), 0);
        assert_eq!(cuStreamDestroy_v2(s), 0);
        assert_eq!(cuStreamQuery(s), 400);
    }
    assert_eq!(test.findings(), 0);
}

#[test]
fn a_forked_child_has_no_driver() {
    let _test = Test::new();
    // SAFETY: the child makes two calls that only read flags, and leaves without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let good = cuInit(0) == 3 && cuMemGetInfo_v2(&mut 0, &mut 0) == 3;
        // SAFETY: ends the child at once, without the parent's exit handlers.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    let mut status = 9;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
}
