//! Programs on the runtime: one, two, local, static.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use gpushim_trace::{Class, Kind, flags};

use crate::support::{Outcome, Run, library, place, program, program_with};

fn allocations(outcome: &Outcome) -> usize {
    outcome.trace().count(Kind::Alloc, Class::Device)
}

fn with_cudart(version: u32) -> PathBuf {
    linked("runtime", &version.to_string())
}

fn linked(name: &str, version: &str) -> PathBuf {
    program_with(
        name,
        &[&OsString::from(format!("-l:libcudart.so.{version}"))],
    )
}

fn user_of(version: u32) -> PathBuf {
    library(
        "lib_runtime_user",
        &[&OsString::from(format!("-l:libcudart.so.{version}"))],
    )
}

#[test]
fn a_program_on_a_shared_cudart() {
    for version in [12, 13] {
        let (_, shim) = Run::new(with_cudart(version)).may("double free").both();
        assert_eq!(shim.code, 0, "{}", shim.stdout);
        assert_eq!(
            shim.stdout.matches("wrong bytes: 0\n").count(),
            3,
            "{}",
            shim.stdout
        );
        let trace = shim.trace();
        let allocated = trace.class(Kind::Alloc, Class::Device);
        assert_eq!(allocated.len(), 12);
        assert!(allocated.iter().all(|event| event.size == 100_000));
        assert!(
            allocated[4..]
                .iter()
                .all(|event| event.flags & flags::GROWN == 0),
            "the cache was not used"
        );
        // Named, and the one that the program is linked with.
        let behind = trace.facts("cudaMalloc");
        assert!(
            behind
                .iter()
                .all(|path| path.ends_with(&format!("libcudart.so.{version}"))),
            "{behind:?}"
        );
    }
}

#[test]
fn stream_ordered_memory_of_a_shared_cudart() {
    for version in ["12", "13"] {
        let run = Run::new(linked("runtime_async", version)).may("double free");
        let (_, shim) = run.both();
        let rounds = shim.stdout.matches("failed: 0, wrong bytes: 0, used: 0\n");
        assert_eq!(rounds.count(), 4, "{}", shim.stdout);
        let trace = shim.trace();
        let allocated = trace.class(Kind::Alloc, Class::PoolAsync);
        assert_eq!(allocated.len(), 24);
        assert_eq!(trace.count(Kind::Free, Class::PoolAsync), 24);
        let hits = allocated[6..]
            .iter()
            .filter(|event| event.flags & flags::HIT != 0);
        assert_eq!(hits.count(), 18, "what was freed is had again");
        // The legacy stream is 0, the thread's own 2; the third is an address.
        let streams: Vec<u64> = allocated.iter().map(|event| event.extra[0]).collect();
        for round in streams.chunks(6) {
            assert_eq!([round[0], round[2], round[3], round[5]], [0, 2, 0, 2]);
            assert!(round[1] > 2 && round[1] == round[4]);
        }
    }
}

#[test]
fn the_policies_serve_a_runtime_alike() {
    for policy in ["blocks", "vmm", "off"] {
        let (_, shim) = Run::new(with_cudart(12))
            .may("double free")
            .env("GPUSHIM_POLICY", policy)
            .both();
        assert_eq!(allocations(&shim), 12, "{policy}");
    }
}

/// A hit is answered before the call reaches cudart, whichever pool serves it.
#[test]
fn a_hit_makes_no_call_of_cudart() {
    const PAIRS: u64 = 1024;
    for version in ["12", "13"] {
        for (policy, calls) in [("auto", 0), ("blocks", 0), ("off", 2 * PAIRS)] {
            for (door, class) in [
                ("runtime", Class::Device),
                ("runtime-async", Class::PoolAsync),
            ] {
                for sizes in ["one", "mixed"] {
                    let run = Run::new(linked("hit_pairs", version))
                        .args([door, sizes, "1", &PAIRS.to_string()])
                        .env("STANDIN_MEMORY", "4G")
                        .env("GPUSHIM_POLICY", policy);
                    let shim = run.shim();
                    let what = format!("cudart {version}, {policy}, {door}, {sizes}");
                    assert_eq!(shim.note("calls:"), calls, "{what}");
                    let made = shim.trace().class(Kind::Alloc, class);
                    let hits = made.iter().filter(|event| event.flags & flags::HIT != 0);
                    assert_eq!(hits.count() as u64 >= PAIRS, calls == 0, "{what}");
                }
            }
        }
    }
}

#[test]
fn memory_comes_from_the_device_that_was_set_last() {
    // cudart 11 makes a device's context current at the next call only: a hit must not come before
    // it.
    for version in ["11.0", "12", "13"] {
        for policy in ["blocks", "vmm", "off"] {
            let run = Run::new(linked("devices", version))
                .env("STANDIN_DEVICES", "2")
                .env("GPUSHIM_POLICY", policy);
            let (_, shim) = run.both();
            let trace = shim.trace();
            let events = trace.class(Kind::Alloc, Class::Device);
            let seen: Vec<_> = events
                .iter()
                .map(|event| vec![event.device.to_string(), event.address.to_string()])
                .collect();
            assert_eq!(seen, shim.notes("allocated"), "cudart {version}, {policy}");
            // A free is charged to the device of its allocation.
            let mut live = HashMap::new();
            for event in &trace.events {
                match event.kind {
                    Kind::Alloc => _ = live.insert(event.address, event.device),
                    Kind::Free => assert_eq!(
                        live.remove(&event.address),
                        Some(event.device),
                        "cudart {version}, {policy}"
                    ),
                    _ => {}
                }
            }
            assert_eq!(live.len(), 0, "cudart {version}, {policy}");
        }
    }
}

#[test]
fn two_runtimes_in_one_process_each_for_its_own_caller() {
    let (_, shim) = Run::new(program("two_runtimes"))
        .arg(user_of(12))
        .arg(user_of(13))
        .both();
    assert_eq!(allocations(&shim), 6);
    let trace = shim.trace();
    for name in ["cudaMalloc", "cudaFree"] {
        let behind = trace.facts(name);
        for version in ["libcudart.so.12", "libcudart.so.13"] {
            let times = behind.iter().filter(|path| path.ends_with(version)).count();
            assert!(
                times >= 1 || name == "cudaFree",
                "{name} of {version} in {behind:?}"
            );
        }
    }
}

#[test]
fn a_runtime_that_is_loaded_locally() {
    for version in ["libcudart.so.12", "libcudart.so.13"] {
        let (_, shim) = Run::new(program("local_runtime")).arg(version).both();
        assert_eq!(allocations(&shim), 5);
    }
}

#[test]
fn a_program_with_a_cudart_of_its_own_inside() {
    // A static cudart has no symbol to interpose: it comes through the driver's door.
    let archive = place().libraries.join("libcudart_static.a");
    let inside = [
        archive.as_os_str(),
        OsStr::new("-lm"),
        OsStr::new("-lgcc_s"),
    ];
    let (_, shim) = Run::new(program_with("runtime", &inside))
        .may("double free")
        .both();
    assert_eq!(allocations(&shim), 12);
    assert_eq!(shim.trace().facts("cudaMalloc"), [] as [&str; 0]);
}

#[test]
fn a_program_that_allocates_in_a_hundred_places() {
    let (_, shim) = Run::new(linked("call_sites", "12")).both();
    assert_eq!(allocations(&shim), 300);
    // Reported once for each library, not at each call or place.
    assert_eq!(shim.trace().facts("cudaMalloc").len(), 1);
    // The pool takes every block back itself: no cudart is looked up for that.
    assert_eq!(shim.trace().facts("cudaFree").len(), 0);
}
