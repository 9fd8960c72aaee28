use proptest::prelude::*;

use crate::replay::device::ReplayDevice;
use crate::replay::outcome::Outcome;
use crate::replay::policy::Policy;
use crate::replay::run::torch_options;
use crate::replay::tests::{MIB, made, outcome};
use gpushim_analysis::ledger::Focus;
use gpushim_analysis::requests::{Op, Requests};
use gpushim_recording as recording;
use gpushim_recording::Settings;
use gpushim_trace::{Kind, Layer};

fn snapshot(name: &str) -> Requests {
    let path = format!(
        "{}/../../tests/data/{name}.pickle.gz",
        env!("CARGO_MANIFEST_DIR")
    );
    let snapshot = recording::open(path.as_ref()).expect("a snapshot");
    let focus = Focus {
        layer: Layer::Tensor,
        device: None,
    };
    let mut devices = Requests::of(&*snapshot, focus);
    devices.remove(&0).expect("requests of one device")
}

/// Snapshots record the bytes that PyTorch held.
#[test]
fn torch_holds_what_pytorch_held() {
    for name in [
        "forward",
        "inference",
        "training",
        // Side streams with `record_stream`, and `empty_cache`.
        "torch-streams",
        // Three CUDA graphs, one of which is reset.
        "torch-graph",
        // A private pool of the program, which is destroyed at the end.
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

/// The held bytes agree after each allocation, not only at the peak.
#[test]
fn torch_holds_what_pytorch_held_at_every_moment() {
    for name in ["torch-streams", "torch-mempool", "torch-expandable-streams"] {
        let path = format!(
            "{}/../../tests/data/{name}.pickle.gz",
            env!("CARGO_MANIFEST_DIR")
        );
        let recording = recording::open(path.as_ref()).expect("a snapshot");
        let events = recording.events();
        let tensors = events.filter(|record| record.event.kind == Kind::TensorAlloc);
        let was: Vec<u64> = tensors.map(|record| record.event.extra[1]).collect();
        let requests = snapshot(name);
        let mut torch = Policy::Torch.build(&ReplayDevice::default(), &requests);
        let mut is = Vec::new();
        for request in requests.iter() {
            match request.op {
                Op::Allocate => {
                    torch.allocate(&request).expect("memory");
                    is.push(torch.reserved());
                }
                Op::Free => torch.free(&request),
                Op::Done => torch.done(&request),
                Op::Trim => torch.trim(&request),
            }
        }
        assert_eq!(was.len(), is.len());
        let differs = was.iter().zip(&is).position(|(was, is)| was != is);
        assert_eq!(differs.map(|at| (at, was[at], is[at])), None, "{name}");
        assert!(was.len() > 100, "{name}");
    }
}

/// A block serves no other request while streams use it, even after the program freed it.
#[test]
fn torch_waits_for_streams() {
    let requests = snapshot("torch-streams");
    let late = requests
        .iter()
        .filter(|request| request.op == Op::Done)
        .count();
    assert!(late > 20, "{late}");
    // Without the wait it would hold less.
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

/// Replays steps with some options of PyTorch's allocator.
fn set(steps: &[(Op, u32, u64)], settings: &Settings, limit: u64) -> Outcome {
    let mut requests = made(steps);
    requests.set_settings(settings.clone());
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
    // 30 MiB are not cut from 100 MiB, which serve 90 MiB.
    let split = Settings {
        max_split: Some(64 * MIB),
        ..Settings::default()
    };
    assert_eq!(set(&steps, &split, 1 << 40).peak_reserved, 130 * MIB);
    assert_eq!(
        set(&steps, &Settings::default(), 1 << 40).peak_reserved,
        190 * MIB
    );
    // When memory is short, only the smallest sufficient block is released. The five calls are two
    // segments, a refused one, a release, and a new segment.
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
    let kept = set(&steps, &Settings::default(), 120 * MIB);
    let collects = Settings {
        collect_above: Some(0.3),
        ..Settings::default()
    };
    let collected = set(&steps, &collects, 120 * MIB);
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
        // Pages from 20 to 60 of 80 MiB are unmapped.
        (Op::Trim, 0, 0),
        (Op::Allocate, 3, 10 * MIB),
        (Op::Allocate, 4, 30 * MIB),
    ];
    let requests = made(&steps);
    let mut torch = Policy::TorchExpandable.build(&ReplayDevice::default(), &requests);
    let mut held = Vec::new();
    for request in requests.iter() {
        match request.op {
            Op::Allocate => torch.allocate(&request).expect("memory"),
            Op::Free => torch.free(&request),
            Op::Done => torch.done(&request),
            Op::Trim => torch.trim(&request),
        }
        held.push(torch.reserved() / MIB);
    }
    // 10 MiB are free below the gap and could grow; the 10 MiB above it serve the request. The 30
    // MiB take the ones below and 20 more.
    assert_eq!(held, [20, 80, 80, 80, 40, 40, 60]);
    assert_eq!(torch.largest_free(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// A replay of a damaged snapshot ends, whatever its addresses, sizes, states and pools.
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
    let path = format!(
        "{}/../../tests/data/{name}.pickle.gz",
        env!("CARGO_MANIFEST_DIR")
    );
    let packed = std::fs::read(path).expect("a file");
    let mut bytes = Vec::new();
    let mut plain = flate2::read::GzDecoder::new(&packed[..]);
    std::io::Read::read_to_end(&mut plain, &mut bytes).expect("gzip");
    bytes
}
