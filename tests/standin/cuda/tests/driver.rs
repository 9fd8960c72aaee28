//! The stand-in through its C interface, as a program sees it.
//!
//! The driver's state is the process's: the tests take turns, each in a context of its own.

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

/// `CUDA_MEM_ALLOC_NODE_PARAMS_v1`, of which little is used.
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

/// A context of the test's own, and the number of findings when it began.
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

    /// Findings since the last call.
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
fn two_streams_race_and_an_event_orders_them() {
    let mut test = Test::new();
    let (a, b, block, e) = (
        stream(NON_BLOCKING),
        stream(NON_BLOCKING),
        alloc(4096),
        event(),
    );
    assert_eq!(kernel(a, 0, block, 4096, true), 0);
    assert_eq!(cuMemsetD8Async(block + 100, 0, 1, b), 0);
    assert_eq!(test.findings(), 1);
    assert_eq!(kernel(a, 0, block + 512, 8, true), 0);
    assert_eq!((cuEventRecord(e, a), cuStreamWaitEvent(b, e, 0)), (0, 0));
    assert_eq!(cuMemcpyDtoDAsync_v2(block, block + 512, 8, b), 0);
    assert_eq!(test.findings(), 0);
}

#[test]
fn a_free_waits_for_the_device_and_orders() {
    let mut test = Test::new();
    let (a, b, block, other) = (
        stream(NON_BLOCKING),
        stream(NON_BLOCKING),
        alloc(4096),
        alloc(4096),
    );
    assert_eq!(kernel(a, 30 * MS, block, 4096, true), 0);
    let start = Instant::now();
    assert_eq!(cuStreamQuery(a), 600);
    assert_eq!(cuMemFree_v2(other), 0);
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(kernel(b, 0, block, 4096, true), 0);
    assert_eq!(test.findings(), 0);
    assert_eq!(kernel(a, 0, block, 4096, true), 0);
    assert_eq!(test.findings(), 1, "and then not any more");
}

#[test]
fn another_thread_is_ordered_by_what_the_host_has_seen_only() {
    let mut test = Test::new();
    let (a, b, block, context) = (
        stream(NON_BLOCKING),
        stream(NON_BLOCKING),
        alloc(64),
        test.context,
    );
    let elsewhere = |wait: bool| {
        assert_eq!(kernel(a, 0, block, 64, true), 0);
        if wait {
            assert_eq!(cuStreamSynchronize(a), 0);
        }
        let other = std::thread::spawn(move || {
            assert_eq!(cuCtxSetCurrent(context), 0);
            kernel(b, 0, block, 64, true)
        });
        assert_eq!(other.join().unwrap(), 0);
        cuCtxSynchronize();
    };
    elsewhere(false);
    assert_eq!(test.findings(), 1);
    elsewhere(true);
    assert_eq!(test.findings(), 0);
}

#[test]
fn context_events_order_reuse_on_any_stream() {
    let mut test = Test::new();
    let (a, b, block, e) = (stream(NON_BLOCKING), stream(0), alloc(4096), event());
    let mut reuse = |fence: bool, wait: bool, target: u64| {
        assert_eq!(kernel(a, 0, block, 4096, true), 0);
        if fence {
            assert_eq!(cuCtxRecordEvent(test.context, e), 0);
        }
        if wait {
            assert_eq!(cuCtxWaitEvent(test.context, e), 0);
        }
        assert_eq!(kernel(target, 0, block, 4096, true), 0);
        let found = test.findings();
        assert_eq!(cuCtxSynchronize(), 0);
        found
    };
    for target in [0, 2, b] {
        assert_eq!(reuse(true, true, target), 0, "{target:#x}");
        assert_eq!(reuse(true, false, target), 1, "{target:#x}, no wait");
        // The event still stands for the round before.
        assert_eq!(reuse(false, true, target), 1, "{target:#x}, no record");
    }
}

#[test]
fn events_take_time() {
    let _test = Test::new();
    let (a, from, until) = (stream(0), event(), event());
    assert_eq!(cuEventQuery(from), 0, "never recorded");
    assert_eq!(cuEventRecord(from, a), 0);
    assert_eq!(standin_launch(a, 20 * MS, 0, std::ptr::null()), 0);
    assert_eq!(cuEventRecord(until, a), 0);
    let mut milliseconds = 0.0;
    assert_eq!(cuEventQuery(until), 600);
    assert_eq!(cuEventElapsedTime(&mut milliseconds, from, until), 600);
    assert_eq!(cuEventSynchronize(until), 0);
    assert_eq!(cuEventElapsedTime(&mut milliseconds, from, until), 0);
    assert!((19.0..40.0).contains(&milliseconds), "{milliseconds}");
}

static MAY_GO: AtomicBool = AtomicBool::new(false);

extern "C" fn wait_for_leave(data: *mut c_void) {
    while !MAY_GO.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    // SAFETY: the test passes pinned memory of 8 bytes.
    unsafe { data.cast::<u64>().write(42) };
}

#[test]
fn later_work_waits_for_a_host_function() {
    let mut test = Test::new();
    let (a, block) = (stream(NON_BLOCKING), alloc(8));
    let pinned = make(|address| cuMemAllocHost_v2(address, 8));
    MAY_GO.store(false, Ordering::Release);
    assert_eq!(
        cuLaunchHostFunc(a, wait_for_leave, pinned as *mut c_void),
        0
    );
    assert_eq!(cuMemcpyHtoDAsync_v2(block, pinned, 8, a), 0);
    assert_eq!(cuStreamQuery(a), 600);
    MAY_GO.store(true, Ordering::Release);
    assert_eq!(cuStreamSynchronize(a), 0);
    let mut back = [0u8; 8];
    assert_eq!(cuMemcpyDtoH_v2(back.as_mut_ptr(), block, 8), 0);
    assert_eq!(u64::from_ne_bytes(back), 42);
    assert_eq!(cuMemFreeHost(pinned), 0);
    assert_eq!(test.findings(), 0);
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
fn unsafe_calls_break_captures_by_mode() {
    let _test = Test::new();
    let (a, other, e, block) = (
        stream(NON_BLOCKING),
        stream(NON_BLOCKING),
        event(),
        alloc(64),
    );
    assert_eq!(cuEventRecord(e, other), 0);
    let unsafe_calls: [(&str, &dyn Fn() -> u32); 4] = [
        ("malloc", &|| cuMemAlloc_v2(&mut 0, 64)),
        ("free", &|| cuMemFree_v2(block)),
        ("event query", &|| cuEventQuery(e)),
        ("stream query", &|| cuStreamQuery(other)),
    ];
    for (name, call) in unsafe_calls {
        for mode in [0, 1] {
            assert_eq!(cuStreamBeginCapture_v2(a, mode), 0);
            assert_eq!(is_capturing(a), 1);
            assert_eq!(call(), 900, "{name} in mode {mode}");
            assert_eq!(is_capturing(a), 2);
            let mut graph = 5;
            assert_eq!((cuStreamEndCapture(a, &mut graph), graph), (901, 0));
            assert_eq!(is_capturing(a), 0);
        }
        if name == "free" {
            continue;
        }
        let mut graph = 0;
        assert_eq!(cuStreamBeginCapture_v2(a, 2), 0);
        assert_eq!(call(), 0, "{name} in relaxed mode");
        assert_eq!(cuStreamEndCapture(a, &mut graph), 0);
        assert_eq!(cuGraphDestroy(graph), 0);
        assert_eq!(cuStreamBeginCapture_v2(a, 0), 0);
        let mut mode = 2;
        assert_eq!(cuThreadExchangeStreamCaptureMode(&mut mode), 0);
        assert_eq!(mode, 0);
        assert_eq!(call(), 0, "{name} by a relaxed thread");
        assert_eq!(cuThreadExchangeStreamCaptureMode(&mut mode), 0);
        assert_eq!(cuStreamEndCapture(a, &mut graph), 0);
        assert_eq!(cuGraphDestroy(graph), 0);
    }
}

#[test]
fn what_a_capture_allows_and_what_breaks_it_in_any_mode() {
    let test = Test::new();
    let (a, other, e) = (stream(NON_BLOCKING), stream(NON_BLOCKING), event());
    for mode in [0, 1, 2] {
        let mut graph = 0;
        assert_eq!(cuStreamBeginCapture_v2(a, mode), 0);
        assert_eq!(cuEventRecord(e, other), 0);
        used();
        assert_eq!(cuStreamEndCapture(a, &mut graph), 0);
        assert_eq!(cuGraphDestroy(graph), 0);
        for call in [cuCtxRecordEvent, cuCtxWaitEvent] {
            assert_eq!(cuStreamBeginCapture_v2(a, mode), 0);
            assert_eq!(call(test.context, e), 900, "mode {mode}");
            assert_eq!(cuStreamEndCapture(a, &mut graph), 901);
        }
    }
}

#[test]
fn other_threads_are_bound_by_global_captures_only() {
    let test = Test::new();
    let (a, context) = (stream(NON_BLOCKING), test.context);
    for (mode, expected) in [(0, 900), (1, 0), (2, 0)] {
        assert_eq!(cuStreamBeginCapture_v2(a, mode), 0);
        let other = std::thread::spawn(move || {
            cuCtxSetCurrent(context);
            let mut address = 0;
            cuMemAlloc_v2(&mut address, 64)
        });
        assert_eq!(other.join().unwrap(), expected, "mode {mode}");
        let mut graph = 0;
        assert_eq!(cuStreamEndCapture(a, &mut graph) == 901, expected == 900);
    }
}

#[test]
fn captures_fork_and_must_be_joined() {
    let _test = Test::new();
    let (a, b, e, f, block) = (stream(0), stream(0), event(), event(), alloc(64));
    let mut graph = 0;
    let fork = || {
        assert_eq!(cuStreamBeginCapture_v2(a, 1), 0);
        assert_eq!(kernel(a, 0, block, 64, true), 0);
        assert_eq!((cuEventRecord(e, a), cuStreamWaitEvent(b, e, 0)), (0, 0));
        assert_eq!(is_capturing(b), 1);
        assert_eq!(kernel(b, 0, block, 64, true), 0);
    };
    fork();
    assert_eq!(cuStreamEndCapture(a, &mut graph), 904);
    assert_eq!((is_capturing(a), is_capturing(b)), (0, 0));
    fork();
    assert_eq!(cuStreamEndCapture(b, &mut graph), 903);
    assert_eq!(cuStreamEndCapture(a, &mut graph), 901);
    fork();
    assert_eq!(cuEventQuery(e), 907);
    assert_eq!(cuStreamEndCapture(a, &mut graph), 901);
    fork();
    assert_eq!((cuEventRecord(f, b), cuStreamWaitEvent(a, f, 0)), (0, 0));
    assert_eq!(cuStreamEndCapture(a, &mut graph), 0);
    let mut count = 0;
    assert_eq!(cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count), 0);
    assert_eq!(count, 2);
    assert_eq!(cuGraphDestroy(graph), 0);
    // Work outside may not come in, and the legacy stream may not be used.
    let outside = event();
    assert_eq!(cuEventRecord(outside, b), 0);
    assert_eq!(cuStreamBeginCapture_v2(a, 1), 0);
    assert_eq!(cuStreamWaitEvent(a, outside, 0), 905);
    assert_eq!(cuStreamEndCapture(a, &mut graph), 901);
    assert_eq!(cuStreamBeginCapture_v2(a, 2), 0);
    assert_eq!(kernel(0, 0, block, 64, false), 906);
    assert_eq!(cuStreamEndCapture(a, &mut graph), 901);
    assert_eq!(cuStreamBeginCapture_v2(0, 2), 900);
}

#[test]
fn graph_launches_touch_what_their_nodes_touch() {
    let mut test = Test::new();
    let (a, b, block) = (stream(NON_BLOCKING), stream(NON_BLOCKING), alloc(64));
    let mut graph = 0;
    assert_eq!(cuStreamBeginCapture_v2(a, 0), 0);
    assert_eq!(cuMemsetD8Async(block, 5, 64, a), 0);
    assert_eq!(cuStreamEndCapture(a, &mut graph), 0);
    let exec = make(|exec| cuGraphInstantiateWithFlags(exec, graph, 0));
    assert_eq!(cuGraphDestroy(graph), 0);
    assert_eq!(kernel(b, 0, block, 64, true), 0);
    assert_eq!(cuStreamSynchronize(b), 0);
    assert_eq!(cuGraphLaunch(exec, a), 0);
    assert_eq!(
        cuGraphLaunch(exec, b),
        0,
        "launches of one graph do not overlap"
    );
    assert_eq!(test.findings(), 0);
    let mut byte = 0;
    assert_eq!(cuMemcpyDtoH_v2(&mut byte, block, 1), 0);
    assert_eq!(
        (byte, test.findings()),
        (5, 1),
        "the copy is on the legacy stream"
    );
    assert_eq!(cuStreamSynchronize(b), 0);
    assert_eq!(cuMemFree_v2(block), 0);
    assert_eq!(cuGraphLaunch(exec, a), 1, "its memory is gone");
    assert_eq!(test.findings(), 1);
    assert_eq!(cuGraphExecDestroy(exec), 0);
}

#[test]
fn unordered_nodes_of_one_graph_race() {
    let mut test = Test::new();
    let (a, b, e, f, block) = (stream(0), stream(0), event(), event(), alloc(64));
    for (overlap, findings) in [(0, 1), (32, 0)] {
        let mut graph = 0;
        assert_eq!(cuStreamBeginCapture_v2(a, 1), 0);
        assert_eq!((cuEventRecord(e, a), cuStreamWaitEvent(b, e, 0)), (0, 0));
        assert_eq!(kernel(a, 0, block, 32, true), 0);
        assert_eq!(kernel(b, 0, block + overlap, 32, true), 0);
        assert_eq!((cuEventRecord(f, b), cuStreamWaitEvent(a, f, 0)), (0, 0));
        assert_eq!(cuStreamEndCapture(a, &mut graph), 0);
        let exec = make(|exec| cuGraphInstantiateWithFlags(exec, graph, 0));
        assert_eq!(test.findings(), findings);
        assert_eq!((cuGraphExecDestroy(exec), cuGraphDestroy(graph)), (0, 0));
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
fn graphs_allocate_and_free() {
    let mut test = Test::new();
    let (a, b, mut graph, mut alloc_node, mut free_node) =
        (stream(NON_BLOCKING), stream(NON_BLOCKING), 0, 0, 0);
    let before = used();
    let held = || {
        let mut held = 0;
        assert_eq!(cuDeviceGetGraphMemAttribute(0, 2, &mut held), 0);
        held as usize
    };
    assert_eq!(cuGraphCreate(&mut graph, 0), 0);
    let mut params = AllocNode {
        kind: 1,
        handles: 0,
        location: [1, 0],
        rest: [0; 9],
        access: [0; 2],
        bytes: 5000,
        address: 0,
    };
    assert_eq!(
        cuGraphAddMemAllocNode(&mut alloc_node, graph, std::ptr::null(), 0, &mut params),
        0
    );
    assert_eq!(
        (used(), held()),
        (before, 0),
        "an address, but no memory yet"
    );
    let exec = make(|exec| cuGraphInstantiateWithFlags(exec, graph, 0));
    assert_eq!(cuGraphLaunch(exec, a), 0);
    assert_eq!(used() - before, held());
    assert_eq!(cuGraphLaunch(exec, a), 1, "not freed since the last launch");
    assert_eq!(kernel(a, 0, params.address, 5000, true), 0);
    assert_eq!(test.findings(), 0);
    assert_eq!(kernel(b, 0, params.address, 5000, false), 0);
    assert_eq!(test.findings(), 1, "used without an order after the launch");
    assert_eq!(cuMemFree_v2(params.address), 0);
    assert_eq!(cuGraphLaunch(exec, a), 0);
    assert_eq!((cuCtxSynchronize(), cuMemFree_v2(params.address)), (0, 0));
    assert_eq!((cuGraphExecDestroy(exec), cuDeviceGraphMemTrim(0)), (0, 0));
    assert_eq!((used(), held()), (before, 0));
    let after = [alloc_node];
    assert_eq!(
        cuGraphAddMemFreeNode(&mut free_node, graph, after.as_ptr(), 1, params.address),
        0
    );
    let exec = make(|exec| cuGraphInstantiateWithFlags(exec, graph, 0));
    assert_eq!((cuGraphLaunch(exec, a), cuGraphLaunch(exec, b)), (0, 0));
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!(
        (
            cuGraphExecDestroy(exec),
            cuGraphDestroy(graph),
            cuDeviceGraphMemTrim(0)
        ),
        (0, 0, 0)
    );
    assert_eq!((used(), held(), test.findings()), (before, 0, 0));
}

#[test]
fn an_updated_graph_does_what_the_new_one_does() {
    let mut test = Test::new();
    let (a, block) = (stream(NON_BLOCKING), alloc(8));
    let capture = |values: &[u8]| {
        let mut graph = 0;
        assert_eq!(cuStreamBeginCapture_v2(a, 1), 0);
        for value in values {
            assert_eq!(cuMemsetD8Async(block, *value, 8, a), 0);
        }
        assert_eq!(cuStreamEndCapture(a, &mut graph), 0);
        graph
    };
    let exec = make(|exec| cuGraphInstantiateWithFlags(exec, capture(&[1]), 0));
    let mut info = [9; 3];
    assert_eq!(cuGraphExecUpdate_v2(exec, capture(&[2]), &mut info), 0);
    assert_eq!(cuGraphExecUpdate_v2(exec, capture(&[3, 4]), &mut info), 910);
    assert_eq!(info[0] as u32, 2, "topology changed");
    let mut byte = 0;
    assert_eq!((cuGraphLaunch(exec, a), cuStreamSynchronize(a)), (0, 0));
    assert_eq!(cuMemcpyDtoH_v2(&mut byte, block, 1), 0);
    assert_eq!((byte, test.findings()), (2, 0));
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

/// Eight threads hand blocks to each other: each writes a block on its own stream, and gives it to the next thread,
/// which orders its work by a context event or does not.
fn hand_around(context: u64, orders: bool) {
    let blocks: Vec<u64> = (0..16).map(|_| alloc(1 << 16)).collect();
    let free = Mutex::new(blocks.clone());
    std::thread::scope(|scope| {
        for thread in 0..8usize {
            let free = &free;
            scope.spawn(move || {
                assert_eq!(cuCtxSetCurrent(context), 0);
                let (stream, event) = (stream(thread as u32 & 1), event());
                for round in 0..2000 {
                    let mut list = free.lock().unwrap();
                    let index = (round * 7 + thread) % list.len();
                    let block = list.swap_remove(index);
                    drop(list);
                    if orders {
                        assert_eq!(cuCtxRecordEvent(context, event), 0);
                        assert_eq!(cuCtxWaitEvent(context, event), 0);
                    }
                    assert_eq!(kernel(stream, 0, block + 4096, 4096, true), 0);
                    assert_eq!(kernel(stream, 0, block, 1 << 16, round % 3 == 0), 0);
                    free.lock().unwrap().push(block);
                }
            });
        }
    });
    assert_eq!(cuCtxSynchronize(), 0);
    blocks
        .into_iter()
        .for_each(|block| assert_eq!(cuMemFree_v2(block), 0));
}

#[test]
fn many_threads_are_judged_alike() {
    let mut test = Test::new();
    hand_around(test.context, true);
    assert_eq!(test.findings(), 0);
    hand_around(test.context, false);
    assert!(test.findings() > 100);
}
