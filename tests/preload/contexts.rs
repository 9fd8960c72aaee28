//! Contexts that end, and several at once.

use std::collections::BTreeMap;

use gpushim_trace::{Class, Event, Kind, flags};

use crate::support::{Run, program};

const POLICIES: [&str; 3] = ["blocks", "vmm", "off"];

/// A context ends three times with blocks out and blocks cached.
fn ends(how: &str) {
    for policy in POLICIES {
        let (_, shim) = Run::new(program("contexts"))
            .may("double free")
            .arg(how)
            .env("GPUSHIM_POLICY", policy)
            .both();
        assert_eq!(shim.code, 0, "{policy}: {}", shim.stdout);
        let trace = shim.trace();
        assert_eq!(trace.count(Kind::Alloc, Class::Device), 21, "{policy}");
        let gone = trace.of(Kind::ContextGone);
        assert_eq!(gone.len(), 3, "{policy}");
        if policy == "off" {
            let is_ended = |free: &&Event| free.flags & flags::ENDED != 0;
            let frees = trace.of(Kind::Free);
            assert_eq!(frees.iter().filter(is_ended).count(), 6);
        } else {
            // Two of six blocks of 4 MiB were still out each time.
            assert!(
                gone.iter()
                    .all(|event| event.size >= 8 << 20 && event.device == 0),
                "{policy}: {gone:?}"
            );
            // Each byte that was held is released by an event of its own, or goes with its context,
            // once.
            let mut held = BTreeMap::new();
            for event in &trace.events {
                match event.kind {
                    Kind::Reserve => {
                        held.insert(event.address, (event.extra[0], event.size));
                    }
                    Kind::Release => {
                        let known = held.remove(&event.address);
                        assert_eq!(known.map(|(_, bytes)| bytes), Some(event.size), "{policy}");
                    }
                    Kind::ContextGone => {
                        let before: u64 = held.values().map(|(_, bytes)| bytes).sum();
                        held.retain(|_, (context, _)| *context != event.address);
                        let after: u64 = held.values().map(|(_, bytes)| bytes).sum();
                        assert_eq!(before - after, event.extra[0], "{policy}: {gone:?}");
                    }
                    _ => {}
                }
            }
            assert_eq!(
                held.values().map(|(_, bytes)| bytes).sum::<u64>(),
                trace.reserved(),
                "{policy}"
            );
        }
    }
}

#[test]
fn a_destroyed_context_takes_its_blocks_along() {
    ends("destroy");
}

#[test]
fn a_reset_primary_context_takes_its_blocks_along() {
    ends("reset");
}

#[test]
fn a_released_primary_context_takes_its_blocks_along() {
    ends("release");
}

#[test]
fn memory_of_one_context_is_not_handed_out_in_another() {
    for policy in POLICIES {
        let (_, shim) = Run::new(program("switching"))
            .env("GPUSHIM_POLICY", policy)
            .both();
        assert_eq!(
            shim.stdout.matches("in its context: 1\n").count(),
            12,
            "{policy}: {}",
            shim.stdout
        );
    }
}

#[test]
fn threads_on_different_devices() {
    for policy in POLICIES {
        let run = Run::new(program("threads"))
            .env("STANDIN_DEVICES", "2")
            .env("GPUSHIM_POLICY", policy);
        let (_, shim) = run.both();
        let trace = shim.trace();
        assert_eq!(trace.count(Kind::Alloc, Class::Device), 800, "{policy}");
        // 57 rounds in 400 of each are on the other's device.
        for device in 0..2 {
            let here = |kind| {
                trace
                    .class(kind, Class::Device)
                    .iter()
                    .filter(|event| event.device == device)
                    .count()
            };
            assert_eq!(
                (here(Kind::Alloc), here(Kind::Free)),
                (400, 400),
                "{policy}, device {device}"
            );
        }
    }
}

/// Contexts come and go with stream-ordered memory, with virtual memory management and without.
fn memory_of_the_device(how: &str) {
    for policy in ["auto", "blocks", "vmm"] {
        for lacks in ["", "vmm"] {
            let (native, shim) = Run::new(program("async_contexts"))
                .arg(how)
                .env("GPUSHIM_POLICY", policy)
                .env("GPUSHIM_DECAY", "20ms")
                .env("STANDIN_LACKS", lacks)
                .both();
            assert_eq!(shim.code, 0, "{policy}, without {lacks}: {}", shim.stdout);
            let own = "fresh block holds its own: 1\n";
            assert_eq!(native.stdout.matches(own).count(), 48);
        }
    }
}

/// All that lives on after the end of the primary context natively does here.
fn memory_of_others(how: &str) {
    for policy in ["auto", "blocks", "vmm"] {
        let (native, shim) = Run::new(program("primary_ends"))
            .arg(how)
            .env("GPUSHIM_POLICY", policy)
            .may("double free")
            .both();
        assert_eq!(shim.stdout, native.stdout, "{policy}");
        let own = "holds its own 1, freed 0\n";
        assert_eq!(native.stdout.matches(own).count(), 36, "{}", native.stdout);
    }
}

#[test]
fn stream_ordered_memory_outlives_a_reset_primary_context() {
    memory_of_others("reset");
}

#[test]
fn stream_ordered_memory_outlives_a_released_primary_context() {
    memory_of_others("release");
}

/// Without virtual memory management stream-ordered memory ends with the primary context.
///
/// Memory of `cudaMalloc` in another context does not end then.
#[test]
fn memory_of_other_contexts_outlives_the_primary_one_without_virtual_memory_management() {
    for policy in ["auto", "blocks", "vmm"] {
        for how in ["reset", "release"] {
            let shim = Run::new(program("primary_ends"))
                .arg(how)
                .env("GPUSHIM_POLICY", policy)
                .env("STANDIN_LACKS", "vmm")
                .may("")
                .shim();
            let plain = shim
                .stdout
                .lines()
                .filter(|line| line.starts_with("kind 2"));
            let (own, lost): (Vec<_>, Vec<_>) =
                plain.partition(|line| line.ends_with("holds its own 1, freed 0"));
            assert_eq!((own.len(), lost), (12, vec![]), "{policy}, {how}");
        }
    }
}

/// The end of the primary context frees no memory in use by another context's work, and breaks no
/// capture there.
#[test]
fn the_primary_context_ends_under_no_work_of_others() {
    for policy in ["auto", "blocks", "vmm"] {
        for how in [["reset", "work"], ["release", "capture"]] {
            let mut run = Run::new(program("primary_under_work"))
                .arg(how[0])
                .env("GPUSHIM_POLICY", policy)
                .env("STANDIN_LACKS", "vmm");
            if how[1] == "capture" {
                run = run.arg(how[1]);
            }
            let (native, shim) = run.both();
            assert_eq!(
                (shim.stdout, shim.code),
                (native.stdout, 0),
                "{policy}, {how:?}"
            );
        }
    }
}

#[test]
fn stream_ordered_memory_outlives_contexts() {
    memory_of_the_device("own");
}

#[test]
fn stream_ordered_memory_outlives_contexts_beside_the_primary_one() {
    memory_of_the_device("beside");
}

#[test]
fn nothing_is_served_in_a_primary_context_that_was_reset() {
    memory_of_the_device("reset");
}

#[test]
fn memory_of_green_contexts_is_the_primary_contexts() {
    for policy in ["auto", "blocks", "vmm", "off"] {
        let (native, _) = Run::new(program("green"))
            .arg("4")
            .env("GPUSHIM_POLICY", policy)
            .both();
        let kept = "device 0, ordered 6060606, plain 4040404\nfree plain: 0\nfree ordered: 0\n";
        assert_eq!(native.stdout.matches(kept).count(), 4, "{}", native.stdout);
        assert!(
            native.stdout.contains("captures kept 0\n"),
            "{}",
            native.stdout
        );
        assert!(native.stdout.ends_with("done\n"), "{}", native.stdout);
    }
}

/// Contexts of a kind end beside threads that allocate and free in another one.
fn end_beside(kind: &str) {
    for policy in ["auto", "blocks", "off"] {
        for reuse in ["order", "wait", "strict"] {
            let (_, shim) = Run::new(program("context_ends"))
                .arg(kind)
                .env("GPUSHIM_POLICY", policy)
                .env("GPUSHIM_REUSE", reuse)
                .both();
            if kind != "busy" {
                // 40 live blocks, and one for each block that waits.
                let held = shim.note("MiB");
                assert!(held <= 128, "{policy} {reuse}: {held} MiB held");
            }
        }
    }
}

#[test]
fn a_context_that_ends_disturbs_no_other() {
    end_beside("plain");
}

#[test]
fn a_green_context_that_ends_disturbs_no_other() {
    end_beside("green");
}

#[test]
fn the_end_of_a_context_waits_for_no_work_of_another() {
    end_beside("busy");
}
