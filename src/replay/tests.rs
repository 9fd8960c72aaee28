use proptest::prelude::*;

use super::heap::{Heap, Piece};
use super::*;
use crate::analysis::Focus;
use crate::pool;
use crate::recording;
use crate::trace::Layer;

fn made(steps: &[(Op, u32, u64)]) -> Requests {
    let mut requests = Requests::default();
    for (at, (op, block, bytes)) in steps.iter().enumerate() {
        let ns = at as u64;
        let request = Request {
            op: *op,
            block: *block,
            bytes: *bytes,
            stream: Some(0),
            thread: 1,
            ns,
        };
        assert!(requests.push(request));
    }
    requests
}

fn outcome(policy: Policy, requests: &Requests, limit: Option<u64>) -> Outcome {
    let device = Device {
        limit,
        ..Device::default()
    };
    run(
        requests,
        &mut *policy.build(&device, requests).expect("an allocator"),
    )
}

const MIB: u64 = 1 << 20;

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
    // 19 of 20 MiB: 1 MiB is left, which stays with the block; the next one needs a segment.
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
    // 18 of 20 MiB: the rest serves.
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
    // 40 MiB that are free at the end, and 20 more.
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
    // 2 MiB first; for 3 MiB a region of 4.
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
    // 10 MiB, 10 more for one, and then 20 more for what no longer fits.
    assert_eq!(
        outcome(Policy::RmmPool, &made(&steps), None).peak_reserved,
        40 * MIB
    );
}

#[test]
fn a_plan_puts_what_never_meets_into_one_place() {
    let steps = [
        (Op::Allocate, 0, 8 * MIB),
        (Op::Allocate, 1, 2 * MIB),
        (Op::Free, 0, 8 * MIB),
        (Op::Allocate, 2, 6 * MIB),
        (Op::Allocate, 3, 2 * MIB),
    ];
    let requests = made(&steps);
    let plan = Plan::of(&requests).expect("few blocks");
    assert_eq!(plan.bytes(), 10 * MIB);
    assert_eq!(plan.offset(0), Some(0));
    assert_eq!(
        outcome(Policy::Plan, &requests, None).peak_reserved,
        10 * MIB
    );
}

fn snapshot(name: &str) -> Requests {
    let path = format!("{}/tests/data/{name}.pickle.gz", env!("CARGO_MANIFEST_DIR"));
    let snapshot = recording::open(path.as_ref()).expect("a snapshot");
    let focus = Focus {
        layer: Layer::Tensor,
        device: None,
    };
    let mut devices = Requests::of(&*snapshot, focus);
    devices.remove(&0).expect("requests of one device")
}

/// Snapshots say what PyTorch itself held.
#[test]
fn torch_holds_what_pytorch_held() {
    for name in [
        "forward",
        "inference",
        "training",
        // Side streams with record_stream, and empty_cache.
        "torch-streams",
        // Three CUDA graphs, one of which is reset.
        "torch-graph",
        // A pool of the program's own, which is gone at the end.
        "torch-mempool",
        "torch-expandable-streams",
        // A history that begins in the middle.
        "torch-expandable-late",
    ] {
        let requests = snapshot(name);
        let held = requests.recorded_reserved().expect("it says so");
        let seen = outcome(Policy::Torch, &requests, None);
        assert_eq!(seen.peak_reserved, held, "{name}");
        let expands = name.contains("expandable");
        assert_eq!(
            torch_options(&requests),
            if expands {
                "expandable_segments:True"
            } else {
                ""
            }
        );
        if expands {
            let same = outcome(Policy::TorchExpandable, &requests, None);
            assert_eq!(same.peak_reserved, held, "{name}");
        }
    }
}

/// Not only the peak: what was held after each allocation.
#[test]
fn torch_holds_what_pytorch_held_at_every_moment() {
    for name in ["torch-streams", "torch-mempool", "torch-expandable-streams"] {
        let path = format!("{}/tests/data/{name}.pickle.gz", env!("CARGO_MANIFEST_DIR"));
        let recording = recording::open(path.as_ref()).expect("a snapshot");
        let events = recording.events();
        let tensors = events.filter(|record| record.event.kind == crate::trace::Kind::TensorAlloc);
        let was: Vec<u64> = tensors.map(|record| record.event.extra[1]).collect();
        let requests = snapshot(name);
        let mut torch = Policy::Torch
            .build(&Device::default(), &requests)
            .expect("it");
        let mut is = Vec::new();
        for request in requests.iter() {
            match request.op {
                Op::Allocate => {
                    torch.allocate(&request).expect("memory");
                    is.push(torch.reserved());
                }
                Op::Free => torch.free(&request),
                Op::Done => torch.done(&request),
                Op::Trim => torch.trim(),
            }
        }
        assert_eq!(was.len(), is.len());
        let differs = was.iter().zip(&is).position(|(was, is)| was != is);
        assert_eq!(differs.map(|at| (at, was[at], is[at])), None, "{name}");
        assert!(was.len() > 100, "{name}");
    }
}

/// What streams still use serves nobody else, though the program dropped it.
#[test]
fn torch_waits_for_streams() {
    let requests = snapshot("torch-streams");
    let late = requests
        .iter()
        .filter(|request| request.op == Op::Done)
        .count();
    assert!(late > 20, "{late}");
    // Without that it would hold less.
    let mut all = Requests::default();
    for request in requests.iter().filter(|request| request.op != Op::Done) {
        assert!(all.push(request));
    }
    let (waits, does_not) = (
        outcome(Policy::Torch, &requests, None).peak_reserved,
        outcome(Policy::Torch, &all, None).peak_reserved,
    );
    assert!(does_not < waits, "{does_not} {waits}");
}

/// With these options of PyTorch's allocator.
fn set(steps: &[(Op, u32, u64)], options: &[(&str, &str)], limit: u64) -> Outcome {
    let mut requests = made(steps);
    let options = options
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()));
    requests.told.options = options.collect();
    outcome(Policy::Torch, &requests, Some(limit))
}

#[test]
fn torch_does_not_split_what_is_too_large() {
    let steps = [
        (Op::Allocate, 0, 100 * MIB),
        (Op::Free, 0, 100 * MIB),
        (Op::Allocate, 1, 30 * MIB),
        (Op::Allocate, 2, 90 * MIB),
    ];
    // 30 MiB are not cut from 100, which serve 90.
    let split = [("max_split_size", "67108864")];
    assert_eq!(set(&steps, &split, 1 << 40).peak_reserved, 130 * MIB);
    assert_eq!(set(&steps, &[], 1 << 40).peak_reserved, 190 * MIB);
    // Where memory is short, the smallest that makes room goes and the others stay: two segments, one that was
    // refused, one that went, one instead.
    let steps = [
        (Op::Allocate, 0, 150 * MIB),
        (Op::Allocate, 1, 30 * MIB),
        (Op::Free, 0, 150 * MIB),
        (Op::Free, 1, 30 * MIB),
        (Op::Allocate, 2, 120 * MIB),
    ];
    let seen = set(&steps, &split, 240 * MIB);
    assert_eq!((seen.out_of_memory, seen.driver_calls), (0, 5));
}

#[test]
fn torch_collects_what_nobody_asked_for() {
    let mut steps = vec![(Op::Allocate, 0, 40 * MIB), (Op::Free, 0, 40 * MIB)];
    for block in 1..10 {
        steps.extend([
            (Op::Allocate, block, 10 * MIB),
            (Op::Allocate, 100 + block, 10 * MIB),
        ]);
        steps.extend([
            (Op::Free, block, 10 * MIB),
            (Op::Free, 100 + block, 10 * MIB),
        ]);
    }
    steps.push((Op::Allocate, 50, 50 * MIB));
    let kept = set(&steps, &[], 120 * MIB);
    let collected = set(
        &steps,
        &[("garbage_collection_threshold", "0.3")],
        120 * MIB,
    );
    assert_eq!(kept.peak_reserved, 90 * MIB);
    assert_eq!(collected.peak_reserved, 50 * MIB);
}

#[test]
fn expandable_segments_give_whole_pages_back_and_map_them_again() {
    let steps = [
        (Op::Allocate, 0, 10 * MIB),
        (Op::Allocate, 1, 60 * MIB),
        (Op::Allocate, 2, 10 * MIB),
        (Op::Free, 1, 60 * MIB),
        // Pages 20 to 60 of 80 MiB go.
        (Op::Trim, 0, 0),
        (Op::Allocate, 3, 10 * MIB),
        (Op::Allocate, 4, 30 * MIB),
    ];
    let requests = made(&steps);
    let mut torch = Policy::TorchExpandable
        .build(&Device::default(), &requests)
        .expect("it");
    let mut held = Vec::new();
    for request in requests.iter() {
        match request.op {
            Op::Allocate => torch.allocate(&request).expect("memory"),
            Op::Free => torch.free(&request),
            Op::Done => torch.done(&request),
            Op::Trim => torch.trim(),
        }
        held.push(torch.reserved() / MIB);
    }
    // 10 MiB are free below the hole, which could grow, and above it, which serve. 30 take those below and 20 more.
    assert_eq!(held, [20, 80, 80, 80, 40, 40, 60]);
    assert_eq!(torch.largest_free(), 0);
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
    // All but what leaks is given back.
    let live = one.iter().fold(0_i64, |live, request| match request.op {
        Op::Allocate => live + 1,
        Op::Free => live - 1,
        Op::Done | Op::Trim => live,
    });
    assert_eq!(live, i64::from(shape.leaks * shape.steps));
}

/// Sizes that matter to some policy, and others.
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
    /// Whatever is asked: what is held is at least what is live, never beyond the limit, and with enough
    /// memory nothing is refused.
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

    /// No two blocks of a plan that live at the same time share a byte.
    #[test]
    fn a_plan_keeps_blocks_apart(requests in requests()) {
        let plan = Plan::of(&requests).expect("few blocks");
        let mut live: Vec<(u32, u64, u64)> = Vec::new();
        for request in requests.iter() {
            let from = plan.offset(request.block).expect("a place");
            match request.op {
                Op::Allocate => {
                    let to = from + request.bytes;
                    prop_assert!(to <= plan.bytes());
                    prop_assert!(live.iter().all(|(_, begin, end)| to <= *begin || *end <= from));
                    live.push((request.block, from, to));
                }
                _ => live.retain(|(block, ..)| *block != request.block),
            }
        }
    }

    /// Free blocks merge: when all came back, each region is one block again.
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Snapshots with wrong addresses, sizes, states and pools: each replay comes to its end.
    #[test]
    fn damaged_snapshots_are_replayed(
        which in 0..3_usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200),
    ) {
        static SAMPLES: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
        let samples = SAMPLES.get_or_init(|| {
            let names = ["torch-streams", "torch-graph", "torch-expandable-late"];
            names.map(unpacked).to_vec()
        });
        let mut bytes = samples[which].clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let Ok(snapshot) = recording::Snapshot::of("x".as_ref(), &bytes) else {
            return Ok(());
        };
        let focus = Focus { layer: Layer::Tensor, device: None };
        for requests in Requests::of(&snapshot, focus).into_values() {
            for policy in [Policy::Torch, Policy::TorchExpandable, Policy::RmmArena, Policy::Bfc] {
                for limit in [None, Some(64 * MIB)] {
                    let seen = outcome(policy, &requests, limit);
                    let last = seen.curve.0.last().map_or(0, |last| last.requests);
                    prop_assert!(last > 0 && last <= requests.len() as u64);
                }
            }
        }
    }
}

fn unpacked(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/{name}.pickle.gz", env!("CARGO_MANIFEST_DIR"));
    let packed = std::fs::read(path).expect("a file");
    let mut bytes = Vec::new();
    let mut plain = flate2::read::GzDecoder::new(&packed[..]);
    std::io::Read::read_to_end(&mut plain, &mut bytes).expect("gzip");
    bytes
}

/// The engine of the shim is what runs: its own figures agree with those of the device.
#[test]
fn ours_counts_what_the_device_gave() {
    let requests = generate(&Shape {
        layers: 8,
        steps: 12,
        ..Shape::default()
    });
    for policy in [
        pool::Policy::Vmm,
        pool::Policy::Segments,
        pool::Policy::Blocks,
        pool::Policy::Bins,
    ] {
        let seen = outcome(Policy::Ours(policy), &requests, None);
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
