//! Segments of an allocator that does as PyTorch's, with memory only where its tensors are.

use std::ffi::OsStr;

use gpushim_trace::{Class, Kind};

use crate::support::{Outcome, Run, library, program};

/// More than the 44 MiB of live memory at most, and less than its segments.
const TIGHT: &str = "52M";

/// Values of the setting, each with segments of the two kinds: PyTorch's default ones, and
/// expandable ones.
const WAYS: [(&str, bool); 4] = [("auto", false), ("on", false), ("auto", true), ("on", true)];

fn run(what: &str, (elastic, expands): (&str, bool)) -> Run {
    let torch = library("libc10_cuda", &[OsStr::new("-l:libcudart.so.13")]);
    let run = match expands {
        true => Run::new(program("elastic")).env("TORCH_EXPANDS", "1"),
        false => Run::new(program("elastic")),
    };
    run.arg(torch)
        .arg(what)
        .env("STANDIN_LATENCY", "set=300us")
        .env("GPUSHIM_ELASTIC", elastic)
}

fn limited(what: &str, way: (&str, bool)) -> Run {
    run(what, way).env("GPUSHIM_LIMIT", TIGHT)
}

/// Bytes of the device that pages hold, at most.
fn peak(outcome: &Outcome) -> u64 {
    let (mut held, mut peak) = (0, 0);
    for event in &outcome.trace().events {
        match (event.kind, event.class) {
            (Kind::Reserve, Class::PoolAsync) => held += event.size,
            (Kind::Release, Class::PoolAsync) => held -= event.size,
            _ => {}
        }
        peak = peak.max(held);
    }
    peak
}

#[test]
fn what_lives_fits_under_a_limit_that_the_segments_exceed() {
    for expands in [false, true] {
        let native = limited("rounds", ("off", expands)).shim();
        assert!(native.note("refused") > 0, "{}", native.stdout);
    }
    for elastic in WAYS {
        let (native, shim) = limited("rounds", elastic).both();
        assert_eq!(native.note("refused"), 0);
        assert_eq!(shim.note("refused"), 0, "{elastic:?}: {}", shim.stdout);
        assert!(shim.stdout.contains("wrong bytes: 0\n"), "{}", shim.stdout);
        assert!(peak(&shim) <= 52 << 20, "{elastic:?}: {}", peak(&shim));
        assert!(shim.note("reserved") > 52 << 20, "{}", shim.stdout);
        // The segments themselves are seen as ever.
        let trace = shim.trace();
        let segments = trace.class(Kind::Alloc, Class::Device);
        let bytes = if elastic.1 { 20 << 20 } else { 24 << 20 };
        assert!(segments.iter().any(|event| event.size == bytes));
        assert!(trace.count(Kind::Free, Class::Device) > 0);
    }
}

#[test]
fn what_graphs_use_stays_where_it_is() {
    for elastic in WAYS {
        let (_, shim) = run("graph", elastic).env("GPUSHIM_LIMIT", "80M").both();
        assert_eq!(shim.note("refused"), 0, "{elastic:?}: {}", shim.stdout);
        assert!(shim.stdout.contains("wrong bytes: 0\n"), "{}", shim.stdout);
        assert!(shim.note("reserved") > 80 << 20, "{}", shim.stdout);
    }
}

#[test]
fn a_segment_looks_like_one_allocation() {
    // Two tensors live beside the rounds.
    let run = run("questions", ("on", false)).env("GPUSHIM_LIMIT", "64M");
    let run = run.env("IMPORTER", program("ipc"));
    let (_, shim) = run.both();
    // The other process has the bytes of both.
    assert!(
        shim.stdout.contains("read: open 0, bytes 1 2\n"),
        "{}",
        shim.stdout
    );
}

#[test]
fn another_process_has_the_tensors_of_expandable_segments() {
    for elastic in ["auto", "on"] {
        let (native, shim) = run("shared", (elastic, true)).both();
        assert!(
            native
                .stdout
                .contains("changed to 99, access from nowhere 1\n"),
            "{}",
            native.stdout
        );
        assert!(shim.stdout.contains("wrong bytes: 0\n"), "{}", shim.stdout);
        // NCCL and others take memory without such a handle for memory of `cudaMalloc`, and share it
        // from its base.
        assert_eq!((native.note("retain"), shim.note("retain")), (0, 1));
        assert_eq!(shim.note("from_base"), 1);
    }
}

#[test]
fn memory_that_is_not_announced_is_there() {
    let (_, shim) = run("uncached", ("on", false)).both();
    assert!(shim.stdout.contains("wrong bytes: 0\n"), "{}", shim.stdout);
    // The first four had segments on trial.
    let small = |event: &&gpushim_trace::Event| event.size == 3 << 20;
    let trace = shim.trace();
    let segments = trace.class(Kind::Alloc, Class::Device);
    assert_eq!(segments.iter().filter(small).count(), 6);
}

#[test]
fn wrong_announcements_end_it_and_lose_nothing() {
    for elastic in WAYS {
        let (_, shim) = run("error", elastic).may_complain().both();
        assert!(shim.stdout.contains("wrong bytes: 0\n"), "{}", shim.stdout);
        let said = shim.complaints();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].starts_with(
                "gpushim: GPUSHIM_ELASTIC: device 0: PyTorch's announcements cannot be followed ("
            ),
            "{said:?}"
        );
        assert_eq!(shim.trace().facts("device.0.elastic").len(), 1);
    }
}

#[test]
fn the_end_of_a_context_gives_all_back() {
    for way in WAYS {
        let (native, shim) = run("reset", way).both();
        match way.1 {
            false => assert_eq!(native.note("left"), shim.note("left")),
            // The driver's mapped memory outlives contexts, an elastic one's does not.
            true => assert!(native.note("left") < shim.note("left")),
        }
    }
}

#[test]
fn a_promise_is_mapped_as_a_whole_and_its_part_ends_with_the_context() {
    for elastic in ["auto", "on"] {
        let run = run("handles", (elastic, true)).env("GPUSHIM_LIMIT", "160M");
        let (_, shim) = run.both();
        let parts = ["before", "after", "again"].map(|when| shim.note(when));
        // The last part needs room for one page. Once the mapped part is on trial, each needs all.
        assert_eq!(parts, [8, 6, 6]);
        assert!(
            shim.stdout.contains("1 801 801 801 0 0 "),
            "{}",
            shim.stdout
        );
        let trace = shim.trace();
        let sorted = |kind| {
            let events = trace.class(kind, Class::Device).into_iter();
            let mut all: Vec<_> = events.map(|event| (event.address, event.size)).collect();
            all.sort_unstable();
            all
        };
        // The program has released the handle of one part, and kept those of the others.
        assert!(sorted(Kind::Alloc).len() > 1);
        assert_eq!(sorted(Kind::Alloc), sorted(Kind::Free));
    }
}

#[test]
fn without_memory_on_the_device_it_is_the_hosts() {
    // Half of the live bytes: some tensors are refused, as natively. Tensors that have addresses
    // are not.
    let shim = run("rounds", ("auto", false))
        .env("GPUSHIM_LIMIT", "24M")
        .may_complain()
        .shim();
    assert!(shim.stdout.contains("wrong bytes: 0\n"), "{}", shim.stdout);
    assert!(peak(&shim) <= 24 << 20);
    let said = shim.complaints();
    let slow = "gpushim: GPUSHIM_ELASTIC: device 0: the device has no memory for a tensor, which gets the \
                host's instead; that is slow";
    assert_eq!(said, [slow]);
    let trace = shim.trace();
    assert_eq!(trace.facts("device.0.elastic").len(), 1);
    let of_host = |kind| trace.class(kind, Class::Host).len();
    assert!(of_host(Kind::Alloc) > 0);
    assert_eq!(
        of_host(Kind::Alloc),
        of_host(Kind::Free),
        "all is given back"
    );
}
