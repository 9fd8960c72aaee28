//! Stream capture: allocations inside, and memory that a graph may hold.

use crate::support::{Run, library, program};

const POLICIES: [&str; 2] = ["blocks", "vmm"];

#[test]
fn allocations_in_a_capture_leave_it_whole() {
    for mode in ["0", "1", "2"] {
        for policy in POLICIES {
            for reuse in ["order", "wait", "strict"] {
                let run = Run::new(program("capture"))
                    .arg(mode)
                    .env("GPUSHIM_POLICY", policy)
                    .env("GPUSHIM_REUSE", reuse);
                let shim = run.shim();
                let what = format!("mode {mode}, {policy}, {reuse}: {}", shim.stdout);
                assert_eq!((shim.told(), shim.code), ("done\n".to_owned(), 0), "{what}");
                assert_eq!(shim.stdout.matches("in capture: 0\n").count(), 3, "{what}");
                assert!(shim.stdout.contains("end of the capture: 0\n"), "{what}");
            }
        }
    }
}

#[test]
fn without_a_pool_a_capture_goes_as_natively() {
    for mode in ["0", "1", "2"] {
        let run = Run::new(program("capture"))
            .arg(mode)
            .env("GPUSHIM_POLICY", "off")
            .may("");
        let (native, shim) = (run.native(), run.shim());
        assert_eq!(
            (shim.stdout, shim.code),
            (native.stdout, native.code),
            "mode {mode}"
        );
    }
}

#[test]
fn memory_that_a_graph_holds_is_not_handed_out() {
    for policy in POLICIES {
        let shim = Run::new(program("held_by_graph"))
            .env("GPUSHIM_POLICY", policy)
            .env("GPUSHIM_CACHE_MAX", "1G")
            .shim();
        let with = shim.notes("with");
        assert_eq!(with.len(), 5, "{policy}: {}", shim.stdout);
        let found: Vec<_> = with
            .iter()
            .filter_map(|words| words.last().copied())
            .collect();
        assert_eq!(
            &found[..4],
            ["0", "0", "0", "0"],
            "{policy}: {}",
            shim.stdout
        );
        // Or it was never in the cache, and the four zeros prove nothing.
        assert_eq!(found[4], "1", "{policy}: {}", shim.stdout);
    }
}

#[test]
fn the_race_detector_notices_memory_taken_from_a_graph() {
    let run = Run::new(program("capture")).arg("2").env("DOOR", "default");
    let racing = run
        .preload_before(library("lib_unsafe", &[]))
        .may("")
        .native();
    // Six replays, each beside blocks that the graph writes to.
    let races = racing
        .findings
        .iter()
        .filter(|finding| finding.starts_with("race:"))
        .count();
    assert!(races >= 6, "{:?} {}", racing.findings, racing.stdout);
}

/// Checks that memory freed under captures is available when memory is short, as natively.
fn short_of_memory(how: &str) {
    for (policy, family) in [
        ("auto", "async"),
        ("vmm", "async"),
        ("vmm", "plain"),
        ("blocks", "async"),
    ] {
        let (native, shim) = Run::new(program("short_async"))
            .args([how, family])
            .env("STANDIN_MEMORY", "768M")
            .env("GPUSHIM_POLICY", policy)
            .both();
        assert_eq!(shim.code, 0, "{policy}, {family}: {}", shim.stdout);
        assert_eq!(
            native.stdout.matches("while that holds it: 0\n").count(),
            12
        );
    }
}

#[test]
fn memory_that_a_graph_may_hold_is_there_when_it_is_short() {
    short_of_memory("kept");
}

#[test]
fn memory_freed_under_an_open_capture_is_there_when_it_is_short() {
    short_of_memory("open");
}

#[test]
fn memory_freed_under_a_capture_of_a_thread_that_ended_is_there_when_it_is_short() {
    short_of_memory("ended");
}

#[test]
fn memory_freed_under_overlapping_captures_is_there_when_it_is_short() {
    short_of_memory("two");
}

/// Checks that memory waiting for captures is free, and reported as free, as early as natively.
fn captures_over(how: &str) {
    for policy in ["auto", "blocks", "vmm"] {
        let (_, shim) = Run::new(program("captures_over"))
            .arg(how)
            .env("STANDIN_MEMORY", "768M")
            .env("GPUSHIM_POLICY", policy)
            .both();
        assert_eq!(shim.code, 0, "{policy}: {}", shim.stdout);
    }
}

#[test]
fn nothing_waits_for_a_capture_that_the_driver_has_invalidated() {
    captures_over("broken");
}

#[test]
fn no_pool_of_a_context_made_later_waits_for_a_capture_known_to_be_invalidated() {
    captures_over("context");
}

#[test]
fn what_a_synchronisation_left_to_a_capture_goes_back_when_it_is_over() {
    captures_over("owed");
}

#[test]
fn what_a_graph_may_hold_and_could_be_had_counts_as_free() {
    captures_over("graph");
}

#[test]
fn a_capture_of_a_thread_that_ended_keeps_no_pool_waiting() {
    captures_over("ended");
}

#[test]
fn a_capture_of_a_thread_that_ended_keeps_nothing_from_another_context() {
    captures_over("beside");
}

#[test]
fn a_capture_begins_when_all_memory_is_cached() {
    captures_over("full");
}

#[test]
fn a_stale_free_never_takes_what_the_shim_keeps_for_captures() {
    let (native, shim) = Run::new(program("stale_free"))
        .env("GPUSHIM_DECAY", "300ms")
        .env("STANDIN_LATENCY", "free=20ms")
        .may("double free")
        .both();
    assert_eq!(native.stdout, "1 freed once more 0 times\n");
    assert_eq!((shim.stdout, shim.code), (native.stdout, 0));
}

#[test]
fn a_stale_free_never_takes_what_the_shim_is_just_allocating() {
    let (native, shim) = Run::new(program("stale_free"))
        .arg("coming")
        .env("GPUSHIM_DECAY", "200ms")
        .env("STANDIN_FAULT", "cuMemAlloc_v2:1+:0:after=20ms")
        .may("double free")
        .both();
    assert_eq!(native.stdout, "1 freed once more 0 times\n");
    assert_eq!((shim.stdout, shim.code), (native.stdout, 0));
}

#[test]
fn a_capture_may_free_memory_where_an_ended_context_had_its_own() {
    // The context has ended for the driver, and not yet for the shim.
    let fault = "cuCtxDestroy_v2:1:0:after=200ms";
    for policy in POLICIES {
        let (native, shim) = Run::new(program("capture_beside_end"))
            .env("GPUSHIM_POLICY", policy)
            .env("STANDIN_FAULT", fault)
            .both();
        assert_eq!(native.stdout, "0 calls failed\n");
        assert_eq!(shim.stdout, native.stdout, "{policy}");
    }
}

#[test]
fn a_capture_of_a_thread_that_ended_lets_memory_be_freed_when_strict() {
    for (how, policy) in ["left", "green"]
        .iter()
        .flat_map(|how| POLICIES.map(|policy| (how, policy)))
    {
        let (native, shim) = Run::new(program("captures_over"))
            .arg(how)
            .env("STANDIN_MEMORY", "768M")
            .env("GPUSHIM_POLICY", policy)
            .env("GPUSHIM_REUSE", "strict")
            .both();
        assert_eq!(
            native.stdout.matches(": 0\n").count(),
            6,
            "{}",
            native.stdout
        );
        assert_eq!(
            (shim.stdout, shim.code),
            (native.stdout, 0),
            "{how} {policy}"
        );
    }
}

#[test]
fn a_capture_of_a_stream_of_another_context_is_left_whole() {
    for policy in POLICIES {
        let run = Run::new(program("capture_elsewhere"))
            .env("GPUSHIM_POLICY", policy)
            .env("STANDIN_MEMORY", "1G");
        let (native, shim) = (run.native(), run.shim());
        assert_eq!(native.stdout, "end of the capture: 0\n");
        assert_eq!((shim.stdout, shim.code), (native.stdout, 0), "{policy}");
    }
}
