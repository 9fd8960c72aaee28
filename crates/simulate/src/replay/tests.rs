use proptest::prelude::*;

use super::*;
use crate::replay::heap::{Heap, Piece};
use gpushim_alloc as alloc;
use gpushim_analysis::requests::made::{Shape, generate};
use gpushim_analysis::requests::{Op, Request, Requests};

pub(super) fn made(steps: &[(Op, u32, u64)]) -> Requests {
    let mut requests = Requests::default();
    for (at, (op, block, bytes)) in steps.iter().enumerate() {
        let ns = at as u64;
        let request = Request {
            op: *op,
            block: *block,
            bytes: *bytes,
            stream: (*op != Op::Trim).then_some(0),
            thread: 1,
            ns,
        };
        assert!(requests.push(request));
    }
    requests
}

pub(super) fn outcome(policy: Policy, requests: &Requests, limit: Option<u64>) -> Outcome {
    let device = ReplayDevice {
        limit,
        ..ReplayDevice::default()
    };
    run(requests, &mut *policy.build(&device, requests))
}

pub(super) const MIB: u64 = 1 << 20;

#[test]
fn what_one_family_has_freed_serves_the_other_under_vmm() {
    let mut requests = Requests::default();
    for (at, stream) in [None, Some(0), None, Some(7)].into_iter().enumerate() {
        for op in [Op::Allocate, Op::Free] {
            assert!(requests.push(Request {
                op,
                block: at as u32,
                bytes: 40 * MIB,
                stream,
                thread: 1,
                ns: at as u64,
            }));
        }
    }
    let held = |policy| outcome(policy, &requests, None).peak_reserved;
    assert_eq!(held(Policy::Gpushim(alloc::Policy::Vmm)), 40 * MIB);
    assert_eq!(held("auto".parse().unwrap()), 40 * MIB);
    let blocks = Policy::Gpushim(alloc::Policy::Blocks);
    assert_eq!(held(blocks), 80 * MIB);
}

#[test]
fn torch_gets_segments_by_its_rules() {
    let sizes = [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (11 * MIB - 1, 12 * MIB),
    ];
    for (bytes, reserved) in sizes {
        let seen = outcome(Policy::Torch, &made(&[(Op::Allocate, 0, bytes)]), None);
        assert_eq!(seen.peak_reserved, reserved, "{bytes} bytes");
    }
}

#[test]
fn torch_splits_large_blocks_only_where_more_than_a_small_one_is_left() {
    // 19 of 20 MiB are used. The last MiB stays with its block, so the next request needs a
    // segment.
    let steps = [
        (Op::Allocate, 0, 5 * MIB),
        (Op::Allocate, 1, 9 * MIB),
        (Op::Allocate, 2, 5 * MIB),
        (Op::Allocate, 3, MIB + 1),
    ];
    assert_eq!(
        outcome(Policy::Torch, &made(&steps), None).peak_reserved,
        40 * MIB
    );
    // 18 of 20 MiB are used; the rest serves the next request.
    let steps = [
        (Op::Allocate, 0, 9 * MIB),
        (Op::Allocate, 1, 9 * MIB),
        (Op::Allocate, 2, 2 * MIB),
    ];
    assert_eq!(
        outcome(Policy::Torch, &made(&steps), None).peak_reserved,
        20 * MIB
    );
}

#[test]
fn torch_releases_what_is_cached_before_it_gives_up() {
    let steps = [
        (Op::Allocate, 0, 30 * MIB),
        (Op::Free, 0, 30 * MIB),
        (Op::Allocate, 1, 40 * MIB),
    ];
    let seen = outcome(Policy::Torch, &made(&steps), Some(48 * MIB));
    assert_eq!((seen.out_of_memory, seen.peak_reserved), (0, 40 * MIB));
    let seen = outcome(Policy::Torch, &made(&steps), Some(39 * MIB));
    let first = seen.first_out_of_memory.expect("it does not fit");
    assert_eq!(
        (first.request, first.bytes, seen.out_of_memory),
        (2, 40 * MIB, 1)
    );
}

#[test]
fn expandable_segments_grow_by_whole_pages_at_their_end() {
    let steps = [
        (Op::Allocate, 0, 30 * MIB),
        (Op::Free, 0, 30 * MIB),
        (Op::Allocate, 1, 50 * MIB),
    ];
    // 40 MiB are free at the end, and 20 are added.
    assert_eq!(
        outcome(Policy::TorchExpandable, &made(&steps), None).peak_reserved,
        60 * MIB
    );
}

#[test]
fn bfc_doubles_its_regions() {
    let steps = [
        (Op::Allocate, 0, MIB),
        (Op::Allocate, 1, 3 * MIB),
        (Op::Allocate, 2, MIB / 2),
    ];
    // 2 MiB first; for 3 MiB a region of 4 MiB.
    assert_eq!(
        outcome(Policy::Bfc, &made(&steps), None).peak_reserved,
        6 * MIB
    );
}

#[test]
fn the_pool_of_rmm_doubles() {
    let steps = [
        (Op::Allocate, 0, 10 * MIB),
        (Op::Allocate, 1, MIB),
        (Op::Allocate, 2, 10 * MIB),
    ];
    // 10 MiB, 10 more for 1 MiB, and 20 more for a request that does not fit into the rest.
    assert_eq!(
        outcome(Policy::RmmPool, &made(&steps), None).peak_reserved,
        40 * MIB
    );
}

#[test]
fn the_arenas_of_rmm_have_half_of_the_device() {
    let steps = [(Op::Allocate, 0, 10 * MIB), (Op::Allocate, 1, 40 * MIB)];
    let seen = outcome(Policy::RmmArena, &made(&steps), Some(120 * MIB));
    assert_eq!((seen.peak_reserved, seen.out_of_memory), (60 * MIB, 0));
    let seen = outcome(Policy::RmmArena, &made(&steps), Some(98 * MIB));
    assert_eq!((seen.peak_reserved, seen.out_of_memory), (49 * MIB, 1));
    let seen = outcome(Policy::RmmArena, &made(&steps), None);
    assert_eq!(seen.peak_reserved, 85_017_493_504 / 2);
    let large = [(Op::Allocate, 0, 50_000 * MIB)];
    let seen = outcome(Policy::RmmArena, &made(&large), None);
    assert_eq!((seen.peak_reserved, seen.out_of_memory), (50_000 * MIB, 0));
}

#[test]
fn the_same_seed_makes_the_same_requests() {
    let shape = Shape {
        leaks: 2,
        streams: 3,
        ..Shape::default()
    };
    let (one, two) = (generate(&shape), generate(&shape));
    assert!(one.iter().eq(two.iter()) && one.len() > 1000);
    let other = generate(&Shape { seed: 2, ..shape });
    assert!(!one.iter().eq(other.iter()));
    // All blocks but the leaked ones are freed.
    let live = one.iter().fold(0_i64, |live, request| match request.op {
        Op::Allocate => live + 1,
        Op::Free => live - 1,
        Op::Done | Op::Trim => live,
    });
    assert_eq!(live, i64::from(shape.leaks * shape.steps));
}

/// Sizes at the bounds of some policy, and others.
fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        1..4096_u64,
        1..3 * MIB,
        1..64 * MIB,
        Just(MIB),
        Just(10 * MIB),
        Just(2 * MIB)
    ]
}

fn requests() -> impl Strategy<Value = Requests> {
    proptest::collection::vec(
        (
            any::<bool>(),
            size(),
            0..3_u64,
            any::<prop::sample::Index>(),
        ),
        1..120,
    )
    .prop_map(|steps| {
        let mut requests = Requests::default();
        let (mut live, mut blocks) = (Vec::new(), 0);
        for (allocates, bytes, stream, which) in steps {
            let (op, block, bytes) = if allocates || live.is_empty() {
                live.push((blocks, bytes));
                blocks += 1;
                (Op::Allocate, blocks - 1, bytes)
            } else {
                let (block, bytes) = live.swap_remove(which.index(live.len()));
                (Op::Free, block, bytes)
            };
            requests.push(Request {
                op,
                block,
                bytes,
                stream: Some(stream),
                thread: 1,
                ns: 0,
            });
        }
        requests
    })
}

proptest! {
    /// For any requests, every policy holds at least the live bytes and never more than the limit.
    /// Without a limit nothing is refused.
    #[test]
    fn no_policy_holds_less_than_is_live(requests in requests(), limit in 64 * MIB..512 * MIB) {
        for policy in Policy::ALL {
            let free = outcome(policy, &requests, None);
            prop_assert_eq!(free.out_of_memory, 0, "{}", policy);
            prop_assert_eq!(free.peak_requested, requests.peak());
            prop_assert!(free.peak_reserved >= free.peak_requested, "{}: {:?}", policy, free);
            let bound = outcome(policy, &requests, Some(limit));
            prop_assert!(bound.peak_reserved <= limit, "{}: {:?}", policy, bound);
        }
    }

    /// After all blocks are freed, each region is one free block.
    #[test]
    fn a_heap_forgets_nothing(cuts in proptest::collection::vec(1..1000_u64, 1..40), order in any::<u64>()) {
        let mut heap = Heap::default();
        let mut rest = heap.add(0, 100_000);
        let mut pieces = Vec::new();
        for bytes in cuts {
            let after = heap.cut(rest, bytes);
            prop_assert_eq!(heap.bytes(rest), bytes);
            pieces.push(rest);
            rest = after;
        }
        pieces.push(rest);
        let mut state = order;
        while !pieces.is_empty() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let piece = pieces.swap_remove((state >> 33) as usize % pieces.len());
            heap.release(piece);
        }
        prop_assert_eq!(heap.largest_free(), 100_000);
        let whole = heap.free();
        prop_assert!(whole.len() == 1 && heap.is_region(whole[0]));
        heap.drop_region(whole[0]);
        prop_assert_eq!(heap.best(0, 1), None::<Piece>);
    }
}

/// The pools of the shim serve the requests, and their figures agree with the device's.
#[test]
fn ours_counts_what_the_device_gave() {
    let requests = generate(&Shape {
        layers: 8,
        steps: 12,
        ..Shape::default()
    });
    for policy in [alloc::Policy::Vmm, alloc::Policy::Blocks] {
        let seen = outcome(Policy::Gpushim(policy), &requests, None);
        assert!(
            seen.driver_calls > 0 && seen.driver_ns > 0,
            "{policy:?}: {seen:?}"
        );
        let last = seen.curve.0.last().expect("a curve");
        assert_eq!(last.requests, requests.len() as u64);
        let highest = seen.curve.0.iter().map(|point| point.reserved).max();
        assert_eq!(highest, Some(seen.peak_reserved));
    }
}

/// Cached memory is released after the decay time of the recording's clock, and at once on a trim.
#[test]
fn ours_gives_back_what_the_shim_would() {
    let second = 1_000_000_000;
    let made = |last: u64, trimmed: Option<u64>| {
        let mut requests = Requests::default();
        let mut push = |op, block, bytes, ns| {
            let stream = Some(0);
            let thread = 1;
            assert!(requests.push(Request {
                op,
                block,
                bytes,
                stream,
                thread,
                ns
            }));
        };
        push(Op::Allocate, 0, 64 * MIB, 0);
        push(Op::Free, 0, 64 * MIB, second);
        if let Some(keep) = trimmed {
            push(Op::Trim, 0, keep, second);
        }
        push(Op::Allocate, 1, MIB, last);
        requests
    };
    let held = |requests: &Requests, decay: u64| {
        let device = ReplayDevice {
            decay,
            ..ReplayDevice::default()
        };
        let vmm = Policy::Gpushim(alloc::Policy::Vmm);
        let mut allocator = vmm.build(&device, requests);
        run(requests, &mut *allocator);
        allocator.reserved()
    };
    assert_eq!(held(&made(2 * second, None), 10 * second), 64 * MIB);
    assert_eq!(held(&made(60 * second, None), 10 * second), 2 * MIB);
    assert_eq!(held(&made(60 * second, None), 0), 64 * MIB);
    assert_eq!(held(&made(u64::MAX, None), 10 * second), 2 * MIB);
    assert_eq!(held(&made(2 * second, Some(0)), 10 * second), 2 * MIB);
    assert_eq!(
        held(&made(2 * second, Some(64 * MIB)), 10 * second),
        64 * MIB
    );
}

#[test]
fn the_lowest_that_is_large_enough() {
    // The expected block is found by a search of all blocks.
    let mut random = 7_u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    let mut heap = Heap::with_first_fit();
    let mut used = Vec::new();
    for round in 0..5000 {
        let octave = next(20);
        let whole = heap.add(round % 2, 1 + next(2 << octave));
        if next(2) == 0 {
            heap.release(whole);
        } else {
            used.push(whole);
        }
        let (group, bytes) = (round % 2, next(1 << 20));
        let free = heap
            .free()
            .into_iter()
            .filter(|piece| heap.group(*piece) == group);
        let expected = free.filter(|piece| heap.bytes(*piece) >= bytes);
        let expected = expected.min_by_key(|piece| heap.address(*piece));
        assert_eq!(heap.first(group, bytes), expected, "{round}");
        if let Some(found) = expected.filter(|_| next(2) == 0) {
            heap.take(found);
            heap.split(found, 1 + next(1 << 20));
            used.push(found);
        }
        if next(3) == 0 && !used.is_empty() {
            let back = used.swap_remove(next(used.len() as u64) as usize);
            heap.release(back);
        }
    }
}
