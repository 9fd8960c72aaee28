//! Tests of the order of work: streams, events, the device and the host.

use super::*;

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

/// Runs eight threads that exchange blocks.
///
/// Each writes a block on its own stream and returns it to a common list, from which any thread
/// takes it. If `orders`, a context event orders the work of the next user.
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
