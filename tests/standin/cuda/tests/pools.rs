//! Tests of stream-ordered pools through the C interface, and of findings for their misuse.

extern crate cuda;

use std::sync::{Mutex, MutexGuard};

macro_rules! driver {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        unsafe extern "C" { $(safe fn $name($($arg: $type),*) -> u32;)* }
    };
}

driver! {
    cuInit(flags: u32);
    cuCtxCreate_v2(context: &mut u64, flags: u32, device: i32);
    cuCtxDestroy_v2(context: u64);
    cuCtxSynchronize();
    cuMemGetInfo_v2(free: &mut usize, total: &mut usize);
    cuMemAlloc_v2(address: &mut u64, bytes: usize);
    cuMemFree_v2(address: u64);
    cuMemcpyDtoH_v2(host: &mut u64, address: u64, bytes: usize);
    cuStreamCreate(stream: &mut u64, flags: u32);
    cuStreamSynchronize(stream: u64);
    cuStreamWaitEvent(stream: u64, event: u64, flags: u32);
    cuEventCreate(event: &mut u64, flags: u32);
    cuEventRecord(event: u64, stream: u64);
    cuEventSynchronize(event: u64);
    cuStreamBeginCapture_v2(stream: u64, mode: u32);
    cuStreamEndCapture(stream: u64, graph: &mut u64);
    cuStreamIsCapturing(stream: u64, status: &mut u32);
    cuMemAllocAsync(address: &mut u64, bytes: usize, stream: u64);
    cuMemAllocAsync_ptsz(address: &mut u64, bytes: usize, stream: u64);
    cuMemFreeAsync(address: u64, stream: u64);
    cuMemFreeAsync_ptsz(address: u64, stream: u64);
    cuDeviceGetDefaultMemPool(pool: &mut u64, device: i32);
    cuMemPoolCreate(pool: &mut u64, props: &PoolProps);
    cuMemPoolDestroy(pool: u64);
    cuMemPoolTrimTo(pool: u64, keep: usize);
    cuMemPoolSetAttribute(pool: u64, attribute: u32, value: &u64);
    cuMemPoolGetAttribute(pool: u64, attribute: u32, value: &mut u64);
    cuMemAllocFromPoolAsync(address: &mut u64, bytes: usize, pool: u64, stream: u64);
    cuPointerGetAttribute(value: &mut u64, attribute: u32, address: u64);
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

/// Properties of a pool on device 0 (`CUmemPoolProps`).
#[repr(C)]
struct PoolProps {
    kind: u32,
    handles: u32,
    location: [u32; 2],
    security: u64,
    max_size: usize,
    rest: [u64; 7],
}

const MIB: usize = 1 << 20;
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

fn kernel(stream: u64, duration: u64, address: u64, bytes: usize) {
    let range = Range {
        address,
        bytes: bytes as u64,
        writes: 1,
    };
    assert_eq!(standin_launch(stream, duration, 1, &range), 0);
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

fn standard() -> u64 {
    make(|pool| cuDeviceGetDefaultMemPool(pool, 0))
}

fn attribute(pool: u64, number: u32) -> u64 {
    make(|value| cuMemPoolGetAttribute(pool, number, value))
}

#[test]
fn the_same_stream_takes_a_freed_block_at_once_and_another_does_not() {
    let _turn = Turn::take();
    let (one, other) = (stream(), stream());
    let pool = standard();
    cuMemPoolSetAttribute(pool, 4, &u64::MAX);
    let first = make(|address| cuMemAllocAsync(address, MIB, one));
    kernel(one, LONG, first, MIB);
    assert_eq!(cuMemFreeAsync(first, one), 0);
    let elsewhere = make(|address| cuMemAllocAsync(address, MIB, other));
    assert_ne!(first, elsewhere);
    let again = make(|address| cuMemAllocAsync(address, MIB, one));
    assert_eq!(first, again);
    let found = findings(|| {
        kernel(one, 1000, again, MIB);
        kernel(other, 1000, elsewhere, MIB);
    });
    assert_eq!(found, 0);
    assert_eq!(
        cuMemFreeAsync(again, one) + cuMemFreeAsync(elsewhere, other),
        0
    );
    cuCtxSynchronize();
    cuMemPoolSetAttribute(pool, 4, &0);
}

#[test]
fn a_block_used_on_a_stream_that_nothing_orders_is_a_race() {
    let _turn = Turn::take();
    let (one, other) = (stream(), stream());
    let block = make(|address| cuMemAllocAsync(address, MIB, one));
    // Used on another stream before the allocation is ordered there.
    assert_eq!(findings(|| kernel(other, LONG, block, 4096)), 1);
    // Freed while the other stream still uses it.
    assert_eq!(findings(|| assert_eq!(cuMemFreeAsync(block, one), 0)), 1);
    cuCtxSynchronize();
    // With events in both directions there is no race.
    let (there, back) = (
        make(|event| cuEventCreate(event, 2)),
        make(|event| cuEventCreate(event, 2)),
    );
    let found = findings(|| {
        let block = make(|address| cuMemAllocAsync(address, MIB, one));
        assert_eq!(
            cuEventRecord(there, one) + cuStreamWaitEvent(other, there, 0),
            0
        );
        kernel(other, 1_000_000, block, 4096);
        assert_eq!(
            cuEventRecord(back, other) + cuStreamWaitEvent(one, back, 0),
            0
        );
        assert_eq!(cuMemFreeAsync(block, one), 0);
    });
    assert_eq!(found, 0);
}

#[test]
fn use_after_a_stream_ordered_free_is_found() {
    let _turn = Turn::take();
    let side = stream();
    let block = make(|address| cuMemAllocAsync(address, MIB, side));
    assert_eq!(cuMemFreeAsync(block, side), 0);
    assert_eq!(findings(|| kernel(side, 1000, block, 4096)), 1);
    assert_eq!(findings(|| assert_eq!(cuMemFreeAsync(block, side), 1)), 1);
}

#[test]
fn a_full_pool_hands_on_with_a_wait_on_the_device() {
    let _turn = Turn::take();
    let (one, other) = (stream(), stream());
    let props = PoolProps {
        kind: 1,
        handles: 0,
        location: [1, 0],
        security: 0,
        max_size: 64 * MIB,
        rest: [0; 7],
    };
    let pool = make(|pool| cuMemPoolCreate(pool, &props));
    let first = make(|address| cuMemAllocFromPoolAsync(address, 48 * MIB, pool, one));
    kernel(one, LONG, first, MIB);
    assert_eq!(cuMemFreeAsync(first, one), 0);
    let second = make(|address| cuMemAllocFromPoolAsync(address, 48 * MIB, pool, other));
    assert_eq!(first, second);
    assert_eq!(findings(|| kernel(other, 1000, second, MIB)), 0);
    let mut third = 0;
    assert_eq!(cuMemAllocFromPoolAsync(&mut third, 48 * MIB, pool, one), 2);
    assert_eq!(cuMemFreeAsync(second, other), 0);
    assert_eq!(cuMemPoolDestroy(pool), 0);
}

#[test]
fn pools_keep_what_their_threshold_says() {
    let _turn = Turn::take();
    let side = stream();
    let pool = standard();
    cuCtxSynchronize();
    assert_eq!(cuMemPoolTrimTo(pool, 0), 0);
    let before = available();
    for (threshold, kept) in [(0, 0), (48 * MIB, 32 * MIB), (usize::MAX, 128 * MIB)] {
        assert_eq!(cuMemPoolTrimTo(pool, 0), 0);
        cuMemPoolSetAttribute(pool, 4, &(threshold as u64));
        let one = make(|address| cuMemAllocAsync(address, 64 * MIB, side));
        let two = make(|address| cuMemAllocAsync(address, 64 * MIB, side));
        assert_eq!(attribute(pool, 7), 128 * MIB as u64);
        assert_eq!(cuMemFreeAsync(one, side) + cuMemFreeAsync(two, side), 0);
        assert_eq!(
            (attribute(pool, 7), attribute(pool, 5)),
            (0, 128 * MIB as u64)
        );
        assert_eq!(cuStreamSynchronize(side), 0);
        assert_eq!(attribute(pool, 5), kept as u64, "threshold {threshold}");
        assert_eq!(available(), before - kept);
    }
    cuMemPoolSetAttribute(pool, 4, &0);
    assert_eq!(cuMemPoolTrimTo(pool, 0), 0);
    assert_eq!(available(), before);
}

#[test]
fn a_pool_counts_what_was_asked_for_and_grows_in_pieces() {
    let _turn = Turn::take();
    let (side, pool) = (stream(), standard());
    let blocks = [100 * MIB + 1, 1].map(|bytes| {
        let block = make(|address| cuMemAllocAsync(address, bytes, side));
        assert_eq!(block % 512, 0);
        block
    });
    assert_eq!(attribute(pool, 7), 104_857_602);
    assert_eq!(attribute(pool, 5), 128 * MIB as u64);
    for block in blocks {
        assert_eq!(cuMemFreeAsync(block, side), 0);
    }
    assert_eq!(attribute(pool, 7), 0);
}

#[test]
fn without_a_threshold_every_wait_that_follows_the_last_free_empties_the_pool() {
    let _turn = Turn::take();
    let (side, pool) = (stream(), standard());
    let event = make(|event| cuEventCreate(event, 2));
    let waits: [(&str, &dyn Fn() -> u32); 3] = [
        ("stream", &|| cuStreamSynchronize(side)),
        ("event", &|| cuEventSynchronize(event)),
        ("context", &|| cuCtxSynchronize()),
    ];
    for (name, wait) in waits {
        let block = make(|address| cuMemAllocAsync(address, 40 * MIB, side));
        kernel(side, LONG / 10, block, MIB);
        assert_eq!(cuEventRecord(event, side) + wait(), 0);
        assert_eq!(attribute(pool, 5), 64 * MIB as u64, "{name}, in use");
        assert_eq!(cuMemFreeAsync(block, side), 0);
        assert_eq!(attribute(pool, 5), 64 * MIB as u64, "{name}, not waited");
        assert_eq!(cuEventRecord(event, side) + wait(), 0);
        assert_eq!(attribute(pool, 5), 0, "{name}");
    }
}

#[test]
fn a_copy_that_waits_gives_nothing_of_a_pool_back() {
    let _turn = Turn::take();
    let (side, pool) = (stream(), standard());
    let other = make(|address| cuMemAlloc_v2(address, 64));
    let block = make(|address| cuMemAllocAsync(address, 40 * MIB, side));
    assert_eq!(cuMemFreeAsync(block, side), 0);
    let mut host = 0;
    assert_eq!(cuMemcpyDtoH_v2(&mut host, other, 8), 0);
    assert_eq!(attribute(pool, 5), 64 * MIB as u64);
    assert_eq!(cuStreamSynchronize(side), 0);
    assert_eq!(attribute(pool, 5), 0);
    assert_eq!(cuMemFree_v2(other), 0);
}

#[test]
fn a_capture_refuses_to_free_what_was_allocated_outside() {
    let _turn = Turn::take();
    let (side, pool) = (stream(), standard());
    let block = make(|address| cuMemAllocAsync(address, MIB, side));
    for mode in 0..3 {
        let (mut status, mut graph) = (0, 0);
        assert_eq!(cuStreamBeginCapture_v2(side, mode), 0);
        let freed = || assert_eq!(cuMemFreeAsync(block, side), 1, "mode {mode}");
        assert_eq!(findings(freed), 0);
        assert_eq!(cuStreamIsCapturing(side, &mut status), 0);
        assert_eq!(status, 1, "mode {mode}");
        assert_eq!(cuStreamEndCapture(side, &mut graph), 0);
        assert_eq!(attribute(pool, 7), MIB as u64);
        assert_eq!(findings(|| kernel(side, 0, block, MIB)), 0);
    }
    assert_eq!(cuMemFreeAsync(block, side), 0);
}

#[test]
fn memory_of_cu_mem_alloc_can_be_freed_on_a_stream_once() {
    let _turn = Turn::take();
    let side = stream();
    let before = available();
    let block = make(|address| cuMemAlloc_v2(address, 4 * MIB));
    kernel(side, LONG, block, MIB);
    assert_eq!(findings(|| assert_eq!(cuMemFreeAsync(block, side), 0)), 0);
    assert_eq!(findings(|| assert_eq!(cuMemFreeAsync(block, side), 1)), 1);
    assert_eq!(available(), before - 4 * MIB);
    cuCtxSynchronize();
    assert_eq!(available(), before);
    assert_eq!(cuMemFree_v2(block), 1);
}

#[test]
fn a_free_on_a_stream_is_over_when_the_context_of_the_memory_ends() {
    let _turn = Turn::take();
    let before = available();
    let own = make(|context| cuCtxCreate_v2(context, 0, 0));
    let block = make(|address| cuMemAlloc_v2(address, 4 * MIB));
    assert_eq!(cuMemFreeAsync(block, stream()), 0);
    assert_eq!(cuCtxDestroy_v2(own), 0);
    let other = make(|address| cuMemAlloc_v2(address, 4 * MIB));
    assert_eq!(other, block, "the test is about this address");
    cuCtxSynchronize();
    assert_eq!(available(), before - 4 * MIB);
    assert_eq!(findings(|| assert_eq!(cuMemFree_v2(other), 0)), 0);
}

#[test]
fn per_thread_variants_mean_the_threads_own_stream() {
    let _turn = Turn::take();
    let block = make(|address| cuMemAllocAsync_ptsz(address, MIB, 0));
    let mine = 2;
    let found = findings(|| {
        kernel(mine, 1000, block, 4096);
        assert_eq!(cuMemFreeAsync_ptsz(block, 0), 0);
    });
    assert_eq!(found, 0);
}

#[test]
fn a_blocks_pool_is_known_and_its_context_is_none() {
    let _turn = Turn::take();
    let side = stream();
    let block = make(|address| cuMemAllocAsync(address, 1000, side));
    assert_eq!(
        make(|value| cuPointerGetAttribute(value, 17, block + 10)),
        standard()
    );
    assert_eq!(make(|value| cuPointerGetAttribute(value, 1, block)), 0);
    assert_eq!(make(|value| cuPointerGetAttribute(value, 12, block)), 1000);
    assert_eq!(cuMemFreeAsync(block, side), 0);
    assert_eq!(cuPointerGetAttribute(&mut 0, 2, block), 1);
}
