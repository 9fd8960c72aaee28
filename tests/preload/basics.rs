//! Behaviour that every program relies on: nulls, zeros and double frees, forks, children.

use gpushim_trace::{Class, Kind};

use crate::support::{Run, program};

#[test]
fn null_zero_and_double_frees_behave_as_natively() {
    for policy in ["blocks", "vmm", "off"] {
        let (_, shim) = Run::new(program("basics"))
            .may("double free")
            .env("GPUSHIM_POLICY", policy)
            .both();
        assert_eq!(shim.code, 0, "{policy}: {}", shim.stdout);
        assert!(
            shim.stdout.contains("wrong bytes or overlaps: 0\n"),
            "{policy}: {}",
            shim.stdout
        );
        assert!(
            shim.stdout.contains("free again: 1\n"),
            "{policy}: {}",
            shim.stdout
        );
    }
}

#[test]
fn memory_of_the_pool_may_be_freed_on_a_stream() {
    let (_, shim) = Run::new(program("freed_on_stream")).both();
    let trace = shim.trace();
    assert_eq!(trace.count(Kind::Alloc, Class::Device), 40);
    assert_eq!(trace.count(Kind::Free, Class::Device), 40);
}

#[test]
fn without_a_current_context_errors_are_the_drivers() {
    Run::new(program("no_context")).may("double free").both();
}

#[test]
fn address_ranges_are_what_was_asked_for() {
    for policy in ["blocks", "off"] {
        Run::new(program("ranges"))
            .env("GPUSHIM_POLICY", policy)
            .both();
    }
}

#[test]
fn every_door_of_the_driver_leads_to_the_pool() {
    for door in ["handle", "proc", "default"] {
        let (_, shim) = Run::new(program("basics"))
            .may("double free")
            .env("DOOR", door)
            .both();
        let trace = shim.trace();
        assert_eq!(trace.count(Kind::Alloc, Class::Device), 9, "{door}");
        assert_eq!(trace.count(Kind::Free, Class::Device), 9, "{door}");
    }
}

/// Checks the trace of a parent that does 10 pairs before and 10 after its forks, and keeps one
/// block over them.
fn late(what: &str) {
    let (_, shim) = Run::new(program("forks")).arg(what).both();
    let trace = shim.trace();
    assert_eq!(trace.pid(), shim.note("pid"));
    assert_eq!(trace.count(Kind::Alloc, Class::Device), 21);
    assert_eq!(trace.count(Kind::Free, Class::Device), 21);
    let threads: Vec<_> = trace
        .of(Kind::Alloc)
        .iter()
        .chain(&trace.of(Kind::Free))
        .map(|e| u64::from(e.thread))
        .collect();
    assert!(
        threads.iter().all(|thread| *thread == trace.pid()),
        "threads {threads:?} in the trace of {}",
        trace.pid()
    );
}

#[test]
fn children_forked_late_that_leave_cuda_alone() {
    late("late-idle");
}

#[test]
fn children_forked_late_that_touch_cuda_get_the_drivers_own_answers() {
    late("late-cuda");
}

#[test]
fn children_that_become_other_programs() {
    late("late-exec");
}

#[test]
fn children_forked_early_have_traces_of_their_own() {
    let (_, shim) = Run::new(program("forks")).arg("early-cuda").both();
    let traces = shim.traces();
    assert_eq!(traces.len(), 4, "{:?}", shim.files());
    for trace in traces {
        let expected = if trace.pid() == shim.note("pid") {
            10
        } else {
            20
        };
        assert_eq!(trace.count(Kind::Alloc, Class::Device), expected);
        assert!(
            trace
                .of(Kind::Alloc)
                .iter()
                .all(|event| u64::from(event.thread) == trace.pid())
        );
    }
}

#[test]
fn cuda_in_handlers_of_exit() {
    let (_, shim) = Run::new(program("at_exit")).both();
    assert_eq!(shim.code, 5);
    assert_eq!(shim.trace().count(Kind::Free, Class::Device), 4);
}

#[test]
fn a_thread_that_is_busy_when_the_process_ends() {
    for policy in ["blocks", "vmm"] {
        for _ in 0..10 {
            let shim = Run::new(program("at_exit"))
                .arg("busy")
                .env("GPUSHIM_POLICY", policy)
                .env("GPUSHIM_DECAY", "20ms")
                .shim();
            assert_eq!(shim.code, 5, "{policy}: {}", shim.stdout);
            assert_eq!(
                shim.stdout
                    .matches(": free 0, allocate 0, free 0\n")
                    .count(),
                2,
                "{policy}: {}",
                shim.stdout
            );
        }
    }
}
