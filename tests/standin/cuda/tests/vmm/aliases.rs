//! Tests of several addresses of one memory, and of remapping to other memory.

use super::*;

#[test]
fn two_addresses_of_one_handle_are_one_memory() {
    let _turn = Turn::take();
    let (one, other) = (stream(), stream());
    let (base, handle) = (reserve(4), create());
    let alias = base + 2 * STEP;
    map(base, handle);
    map(alias, handle);
    kernel(one, LONG, base + 100, 100);
    assert_eq!(findings(|| kernel(other, 0, alias + 300, 100)), 0);
    assert_eq!(findings(|| kernel(other, 0, alias + 150, 100)), 1);
    let set = |stream| assert_eq!(cuMemsetD8Async(base + 150, 1, 8, stream), 0);
    assert_eq!(findings(|| set(one)), 1, "work of another kind");
    order(one, other);
    assert_eq!(findings(|| kernel(other, 0, alias, PAGE)), 0);
    assert_eq!(cuStreamSynchronize(other), 0);
    assert_eq!(findings(|| kernel(one, 0, base, PAGE)), 0);
    assert_eq!(cuStreamSynchronize(one), 0);
    // Other memory at the same address is unaffected.
    kernel(one, LONG, alias, PAGE);
    let second = create();
    unmap(base, 1);
    map(base, second);
    assert_eq!(findings(|| kernel(other, 0, base, PAGE)), 0);
    cuCtxSynchronize();
    unmap(base, 4);
    assert_eq!((cuMemRelease(handle), cuMemRelease(second)), (0, 0));
    assert_eq!(cuMemAddressFree(base, 4 * PAGE), 0);
}

#[test]
fn a_mapping_goes_when_its_address_is_no_longer_used() {
    let _turn = Turn::take();
    let (one, other) = (stream(), stream());
    let (base, handle) = (reserve(2), create());
    let alias = base + STEP;
    map(base, handle);
    kernel(one, 0, base, PAGE);
    // A pool moves memory in this way: it maps it a second time for ordered work, and unmaps the
    // first address after its work.
    map(alias, handle);
    order(one, other);
    assert_eq!(findings(|| kernel(other, LONG, alias, PAGE)), 0);
    assert_eq!(findings(|| unmap(base, 1)), 1, "too early");
    map(base, handle);
    touch(one, 0, base + 5, 1, false);
    assert_eq!(findings(|| unmap(alias, 1)), 1, "under the other's work");
    assert_eq!(cuStreamSynchronize(one), 0);
    assert_eq!(findings(|| unmap(base, 1)), 0);
    cuCtxSynchronize();
    assert_eq!(findings(|| kernel(one, 0, alias, 1)), 1, "not mapped");
    let set = cuMemsetD8Async(alias, 0, 1, one);
    assert_eq!(set, 1, "not mapped");
    cuMemRelease(handle);
    cuMemAddressFree(base, 2 * PAGE);
}

#[test]
fn released_memory_has_no_history() {
    let _turn = Turn::take();
    let (one, other) = (stream(), stream());
    let base = reserve(2);
    let first = create();
    map(base, first);
    kernel(one, LONG, base, PAGE);
    assert_eq!(cuMemRelease(first), 0);
    assert_eq!(findings(|| unmap(base, 1)), 1, "with it goes the memory");
    let second = create();
    map(base + STEP, second);
    assert_eq!(findings(|| kernel(other, 0, base + STEP, PAGE)), 0);
    cuCtxSynchronize();
    unmap(base, 2);
    cuMemRelease(second);
    cuMemAddressFree(base, 2 * PAGE);
}

#[test]
fn nodes_of_one_graph_race_through_two_addresses() {
    let _turn = Turn::take();
    let (one, other) = (stream(), stream());
    let (base, handle) = (reserve(2), create());
    map(base, handle);
    map(base + STEP, handle);
    for (offset, races) in [(0, 1), (64, 0)] {
        let mut graph = 0;
        assert_eq!(cuStreamBeginCapture_v2(one, 1), 0);
        order(one, other);
        kernel(one, 0, base, 64);
        kernel(other, 0, base + STEP + offset, 64);
        order(other, one);
        assert_eq!(cuStreamEndCapture(one, &mut graph), 0);
        let instantiate = || {
            make(|exec| cuGraphInstantiateWithFlags(exec, graph, 0));
        };
        assert_eq!(findings(instantiate), races, "at {offset}");
    }
    unmap(base, 2);
    cuMemRelease(handle);
    cuMemAddressFree(base, 2 * PAGE);
}

#[test]
fn imported_memory_is_the_memory_it_was_exported_from() {
    let _turn = Turn::take();
    let before = available();
    let (one, other) = (stream(), stream());
    let shared = Prop { handles: 1, ..PROP };
    let (base, handle) = (
        reserve(1),
        make(|handle| cuMemCreate(handle, PAGE, &shared, 0)),
    );
    map(base, handle);
    let mut descriptor = -1;
    assert_eq!(
        cuMemExportToShareableHandle(&mut descriptor, handle, 1, 0),
        0
    );
    let wanted = External {
        kind: 1,
        descriptor: descriptor.into(),
        unused: 0,
        size: STEP,
        flags: 0,
        reserved: [0; 16],
    };
    let memory = make(|memory| cuImportExternalMemory(memory, &wanted));
    let half = Buffer {
        offset: STEP / 2,
        size: STEP / 2,
        flags: 0,
        reserved: [0; 16],
    };
    let buffer = make(|address| cuExternalMemoryGetMappedBuffer(address, memory, &half));
    kernel(one, 1000, base + STEP / 2 + 64, 64);
    assert_eq!(findings(|| kernel(other, 1000, buffer, 64)), 0);
    assert_eq!(findings(|| kernel(other, 1000, buffer + 64, 64)), 1);
    assert_eq!(cuStreamSynchronize(one), 0);
    assert_eq!(cuMemFree_v2(buffer), 0);
    unmap(base, 1);
    // The import keeps the memory after every other user has dropped it.
    assert_eq!(cuMemRelease(handle), 0);
    assert_eq!(available(), before - PAGE);
    assert_eq!(cuDestroyExternalMemory(memory), 0);
    assert_eq!(available(), before);
    cuMemAddressFree(base, PAGE);
}
