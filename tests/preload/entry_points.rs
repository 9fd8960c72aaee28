//! Every kind of allocation is in the trace, with its class and size.

use std::collections::BTreeMap;

use gpushim_trace::{Class, Kind, flags};

use crate::support::{Run, program};

#[test]
fn every_allocation_is_recorded_with_its_class_and_size() {
    let (native, shim) = Run::new(program("entry_points")).both();
    assert_eq!(native.code, 0, "{}", native.stdout);
    let trace = shim.trace_of(shim.note("process"));

    // Allocations that the program reports.
    let mut expected = BTreeMap::<&str, Vec<u64>>::new();
    for class in Class::ALL {
        for note in shim.notes(class.name()) {
            expected
                .entry(class.name())
                .or_default()
                .push(note[0].parse().expect("bytes"));
        }
    }
    for class in [
        "device",
        "managed",
        "pitched",
        "array",
        "mipmapped-array",
        "host",
        "registered",
        "vmm",
        "vmm-map",
        "pool-async",
        "graph-node",
    ] {
        assert!(
            expected.contains_key(class),
            "the stand-in refused every {class}: {}",
            shim.stdout
        );
    }
    for kind in [Kind::Alloc, Kind::Free] {
        let mut seen = BTreeMap::<&str, Vec<u64>>::new();
        for event in trace.of(kind) {
            seen.entry(event.class.name()).or_default().push(event.size);
        }
        assert_eq!(seen, expected, "{kind:?}");
    }

    // Only the pools' own blocks are not the driver's. A free has the address of its allocation.
    let ours = [Class::Device, Class::PoolAsync];
    for event in trace.of(Kind::Alloc).iter().chain(&trace.of(Kind::Free)) {
        let forwarded = event.flags & flags::FORWARDED != 0;
        assert_eq!(forwarded, !ours.contains(&event.class), "{event:?}");
        assert_ne!(event.address, 0, "{event:?}");
    }
    assert_eq!(trace.of(Kind::Export).len(), shim.notes("exported").len());
}

#[test]
fn stream_ordered_events_name_their_stream() {
    let trace = Run::new(program("entry_points")).shim();
    let trace = trace.trace_of(trace.note("process"));
    let streams = |kind| -> Vec<u64> {
        trace
            .class(kind, Class::PoolAsync)
            .iter()
            .map(|event| event.extra[0])
            .collect()
    };
    let (allocated, freed) = (streams(Kind::Alloc), streams(Kind::Free));
    // By size: side, per-thread default (2), side and freed without a stream (0), side.
    assert_eq!(allocated.len(), 4);
    assert_eq!([allocated[1], freed[1], freed[2]], [2, 2, 0]);
    assert!(
        allocated[0] > 2
            && allocated[0] == allocated[2]
            && allocated[0] == allocated[3]
            && freed[0] == allocated[0]
    );
}

#[test]
fn what_another_process_opens_is_in_its_own_trace() {
    let (native, shim) = Run::new(program("entry_points")).both();
    if native.notes("importer").is_empty() {
        // A stand-in that opens no handle of another process leaves nothing to see.
        assert!(
            native.stdout.contains("cuIpcOpenMemHandle: "),
            "{}",
            native.stdout
        );
        return;
    }
    let trace = shim.trace_of(shim.note("importer"));
    assert_eq!(trace.count(Kind::Alloc, Class::Ipc), 1);
}

#[test]
fn everything_is_recorded_under_every_policy() {
    let counts = |policy: &str| {
        let run = Run::new(program("entry_points")).env("GPUSHIM_POLICY", policy);
        let shim = run.shim();
        let trace = shim.trace_of(shim.note("process"));
        Class::ALL.map(|class| {
            (
                trace.count(Kind::Alloc, class),
                trace.count(Kind::Free, class),
            )
        })
    };
    let blocks = counts("blocks");
    for policy in ["off", "blocks", "vmm"] {
        assert_eq!(counts(policy), blocks, "{policy}");
    }
}
