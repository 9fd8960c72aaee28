//! Failures that the fault sweep (`scripts/faults`) found, a test each. The driver fails in the
//! shim's own calls.

use crate::support::{Run, program};

/// A free on a stream for which a query fails, first with `fault`, for one call or all calls.
fn freed(policy: &str, fault: &str, expected: &str) {
    let shim = Run::new(program("questions_fail"))
        .arg("free")
        .arg(expected)
        .env("GPUSHIM_POLICY", policy)
        .env("STANDIN_FAULT", fault)
        .shim();
    assert_eq!(shim.code, 0, "{policy} {fault}: {}", shim.stdout);
    assert!(shim.note("hits") > 0, "{policy}: {fault} never struck");
    let told = "free: as expected\ncontents: 7\n";
    assert_eq!(shim.told(), told, "{policy} {fault}");
}

#[test]
fn a_failed_question_about_a_stream_does_not_give_a_segment_to_the_driver() {
    for policy in ["blocks", "vmm"] {
        freed(policy, "cuStreamGetCtx:@1:700", "0");
        freed(policy, "cuStreamGetCtx:@1-3:700", "700");
    }
}

#[test]
fn a_context_that_was_entered_for_a_release_is_left_although_leaving_it_fails() {
    for code in ["400", "719", "999"] {
        let shim = Run::new(program("questions_fail"))
            .arg("context")
            .env("GPUSHIM_POLICY", "blocks")
            .env("STANDIN_MEMORY", "1G")
            .env("STANDIN_FAULT", format!("cuCtxPopCurrent_v2:@1:{code}"))
            .shim();
        assert_eq!(shim.code, 0, "{code}: {}", shim.stdout);
        assert_eq!(shim.note("hits"), 1, "{code}: leaving did not fail");
        let told = "in its own context: 1\nstill in its own context: 1\n";
        assert_eq!(shim.told(), told, "{code}");
    }
}

#[test]
fn a_capture_ends_although_its_context_was_not_told_when_it_began_or_ended() {
    for when in ["begin", "end"] {
        for calls in ["1", "1-2", "1-3"] {
            let fault = format!("cuCtxGetCurrent:@{calls}:709");
            let shim = Run::new(program("questions_fail"))
                .arg(when)
                .env("GPUSHIM_POLICY", "blocks")
                .env("STANDIN_MEMORY", "1G")
                .env("STANDIN_FAULT", &fault)
                .shim();
            assert_eq!(shim.code, 0, "{when} {fault}: {}", shim.stdout);
            assert!(shim.note("hits") > 0, "{when}: {fault} never struck");
            let told = "waits for a capture: 0\n";
            assert_eq!(shim.told(), told, "{when} {fault}");
        }
    }
}

#[test]
fn enabling_peer_access_fails_where_access_to_mapped_memory_is_refused() {
    // A failure of earlier work that this call reports; and one that stays.
    for (calls, said) in [
        ("@1", "enable: 0\ndisable: 0\n"),
        ("@1+", "enable: 999\ndisable: 705\n"),
    ] {
        let shim = Run::new(program("peer_refused"))
            .env("STANDIN_DEVICES", "2")
            .env("GPUSHIM_POLICY", "vmm")
            .env("STANDIN_FAULT", format!("cuMemSetAccess:{calls}:999"))
            .shim();
        assert_eq!((shim.stdout.as_str(), shim.code), (said, 0), "{calls}");
    }
}
