//! Shortage of memory: the memory of captures and graphs, and the memory that the limit allows.

use crate::support::{Outcome, Run, program};

/// A program that is short of memory while a stream captures, with a pool of whole driver
/// allocations.
fn captures(what: &str) -> Run {
    Run::new(program("short_captures"))
        .arg(what)
        .env("STANDIN_MEMORY", "1G")
        .env("GPUSHIM_POLICY", "blocks")
}

#[test]
fn what_others_freed_under_a_capture_comes_back_while_the_graph_lives() {
    for what in ["other", "freed"] {
        let (native, _) = captures(what).both();
        assert_eq!(native.stdout, "with the graph: 0\nwithout it: 0\n");
    }
}

#[test]
fn what_the_driver_would_not_have_freed_stays_with_the_graph() {
    let shim = captures("own").shim();
    assert_eq!(shim.stdout, "with the graph: 2\nwithout it: 0\n");
}

#[test]
fn a_loop_that_frees_every_block_goes_on_in_a_capture() {
    let (native, _) = captures("open").both();
    assert_eq!(native.stdout.matches(": 0 refused\n").count(), 2);
}

#[test]
fn a_thread_that_ends_in_a_capture_leaves_no_shortage() {
    let (native, _) = captures("left").both();
    assert_eq!(native.stdout, "after the thread: 0 refused\n");
}

#[test]
fn each_device_has_the_limit_for_itself() {
    for policy in ["auto", "blocks", "vmm", "off"] {
        let shim = Run::new(program("limit_devices"))
            .arg("devices")
            .env("STANDIN_DEVICES", "2")
            .env("GPUSHIM_LIMIT", "1G")
            .env("GPUSHIM_POLICY", policy)
            .shim();
        let told = ["pooled", "pitched", "stream-ordered", "pages"]
            .map(|class| format!("{class}: 0 and 0, 1024 MiB were free, then 2\n"));
        assert_eq!(shim.stdout, told.concat(), "{policy}");
    }
}

#[test]
fn memory_on_its_way_back_is_waited_for() {
    for policy in ["auto", "blocks", "vmm"] {
        let shim = Run::new(program("short_threads"))
            .env("STANDIN_MEMORY", "1G")
            .env("STANDIN_FAULT", "cuMemUnmap:1:0:before=300ms")
            .env("GPUSHIM_POLICY", policy)
            .shim();
        assert_eq!(shim.stdout, "first: 0\nsecond: 0\n", "{policy}");
    }
}

#[test]
fn a_context_without_captures_is_waited_for_without_any_memory() {
    let shim = Run::new(program("short_threads"))
        .arg("full")
        .env("STANDIN_DEVICES", "2")
        .env("STANDIN_MEMORY", "1G")
        .env("STANDIN_LACKS", "vmm")
        .env("GPUSHIM_POLICY", "blocks")
        .shim();
    assert_eq!(shim.stdout, "beside a capture: 0\n");
}

#[test]
fn what_was_freed_is_not_freed_once_more_for_what_is_there_now() {
    for policy in ["auto", "blocks", "vmm"] {
        let shim = Run::new(program("short_threads"))
            .arg("again")
            .env("GPUSHIM_POLICY", policy)
            .shim();
        assert_eq!(shim.stdout, "on a stream: 1\non none: 1\n", "{policy}");
    }
}

#[test]
fn what_a_capture_records_takes_nothing_of_the_limit() {
    // The shim's pools keep a small driver allocation while streams capture, and wait for work with
    // it.
    for (policy, free) in [("auto", 98), ("vmm", 98), ("off", 100)] {
        let shim = limited_streams("captured", policy);
        let told = format!("after the captures: {free} of 100 MiB are free\nplain: 0\n");
        assert_eq!(shim.stdout, told, "{policy}");
    }
}

#[test]
fn a_stream_takes_from_the_limit_of_its_own_device() {
    let shim = limited_streams("elsewhere", "off");
    // The driver's pool takes 64 MiB for 40.
    let told = "the stream's device: 36 of 100 MiB are free
the other: 100 of 100 MiB are free
the stream's device: 100 of 100 MiB are free
";
    assert_eq!(shim.stdout, told.repeat(2));
}

fn limited_streams(what: &str, policy: &str) -> Outcome {
    Run::new(program("limit_streams"))
        .arg(what)
        .env("STANDIN_DEVICES", "2")
        .env("GPUSHIM_LIMIT", "100M")
        .env("GPUSHIM_POLICY", policy)
        .shim()
}

#[test]
fn threads_that_ask_at_once_stay_within_the_limit() {
    for policy in ["auto", "blocks", "vmm", "off"] {
        for class in ["pooled", "pitched", "stream-ordered", "pages"] {
            let shim = Run::new(program("limit_devices"))
                .arg(class)
                .env("STANDIN_MEMORY", "8G")
                .env("STANDIN_LATENCY", "malloc=20ms")
                .env("GPUSHIM_LIMIT", "1G")
                .env("GPUSHIM_POLICY", policy)
                .shim();
            let figures: Vec<u64> = shim
                .stdout
                .split_whitespace()
                .filter_map(|word| word.trim_end_matches(',').parse().ok())
                .collect();
            let &[got, free] = &figures[..] else {
                panic!("{}", shim.stdout);
            };
            let what = format!("{policy}, {class}: {}", shim.stdout);
            assert!((1..=2).contains(&got), "{what}");
            assert!(free >= 7 * 1024, "{what}");
        }
    }
}

#[test]
fn what_a_refused_request_and_an_address_leave_is_as_natively() {
    for policy in ["blocks", "off"] {
        let (native, _) = Run::new(program("refused"))
            .env("GPUSHIM_POLICY", policy)
            .both();
        assert!(native.stdout.starts_with("refused: 2, 0\n"));
    }
}

#[test]
fn a_process_whose_first_thread_has_ended_ends_with_the_last() {
    for (key, mode) in [
        ("GPUSHIM_TRACE", "off"),
        ("GPUSHIM_TRACE_MODE", "ring"),
        ("GPUSHIM_TRACE_MODE", "full"),
    ] {
        let (native, shim) = Run::new(program("left_alone")).env(key, mode).both();
        assert_eq!((native.code, shim.code), (0, 0), "{mode}");
        assert!(
            native
                .stdout
                .ends_with("the last thread returns\nthe end\n")
        );
    }
}

#[test]
fn a_cancelled_thread_ends_and_the_process_goes_on() {
    // The thread is cancelled while the driver's cuMemAlloc takes its time.
    let shim = Run::new(program("cancelled"))
        .env("GPUSHIM_POLICY", "blocks")
        .env("STANDIN_LATENCY", "malloc=500ms")
        .shim();
    assert_eq!((&shim.stdout[..], shim.code), ("cancelled: 1\ndone\n", 0));
}
