//! `cudaMalloc` and stream-ordered memory in one process: what one family of calls has cached serves
//! the other.

use gpushim_trace::{Class, Event, Kind, flags};

use crate::mempools::{alike_with, asking};
use crate::support::{Outcome, Run, program};

/// The most that pools held from the driver at once, bytes.
fn most_held(outcome: &Outcome) -> u64 {
    let (mut held, mut most) = (0u64, 0);
    for event in &outcome.trace().events {
        match event.kind {
            Kind::Reserve => held += event.size,
            Kind::Release => held -= event.size,
            _ => {}
        }
        most = most.max(held);
    }
    most
}

#[test]
fn what_one_family_has_cached_serves_the_other() {
    let run = asking("both_families", &[]);
    alike_with(
        &run,
        &[
            "cudaMalloc: used 0, at most 0",
            "streams: used 134217728, at most 134217728; reserved enough",
            "trimmed: used 0, at most 134217728; reserved none",
        ],
    );
    for policy in ["auto", "vmm"] {
        let held = most_held(&run.clone().env("GPUSHIM_POLICY", policy).shim());
        assert!((128 << 20..=134 << 20).contains(&held), "{policy}: {held}");
    }
}

/// Without virtual memory management `cudaMalloc` is cached in driver allocations.
/// The driver's own pools serve streams.
#[test]
fn without_virtual_memory_management_streams_have_the_drivers_pools() {
    for (policy, is_auto) in [("auto", true), ("vmm", true), ("blocks", false)] {
        let (_, shim) = Run::new(program("both_families"))
            .env("STANDIN_LACKS", "vmm")
            .env("GPUSHIM_POLICY", policy)
            .both();
        let trace = shim.trace();
        let forwarded = |class| {
            let events = trace.class(Kind::Alloc, class);
            let by_driver = |event: &&Event| event.flags & flags::FORWARDED != 0;
            (events.iter().filter(by_driver).count(), events.len())
        };
        assert_eq!(forwarded(Class::Device), (0, 49), "{policy}");
        assert_eq!(forwarded(Class::PoolAsync), (49, 49), "{policy}");
        let said =
            ["device.0.policy", "device.0.stream_policy"].map(|fact| trace.facts(fact).len());
        assert_eq!(said, [usize::from(is_auto), 1], "{policy}");
    }
}

#[test]
fn what_one_family_has_cached_is_given_up_before_the_other_lacks_memory() {
    let run = || Run::new(program("both_families")).env("GPUSHIM_POLICY", "blocks");
    let freely = most_held(&run().shim());
    assert!(freely >= 250 << 20, "both caches, {freely}");
    for bound in ["GPUSHIM_LIMIT", "STANDIN_MEMORY"] {
        let shim = run().env(bound, "200M").shim();
        assert_eq!(shim.code, 0, "{bound}: {}", shim.stdout);
        assert_eq!(shim.stdout.lines().count(), 7, "{}", shim.stdout);
        assert!(shim.trace().of(Kind::OutOfMemory).is_empty());
        let held = most_held(&shim);
        assert!((128 << 20..=200 << 20).contains(&held), "{held}");
    }
}
