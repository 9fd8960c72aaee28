//! Tests of captures and of the graphs from them.

use super::*;

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
    // Uncaptured work must not be a dependency, and the legacy stream must not be used.
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
