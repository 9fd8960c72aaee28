//! Pools on a driver that refuses pages of virtual memory.

use crate::support::{Run, program};

/// Functions that pages need.
const FUNCTIONS: [&str; 4] = [
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
];

/// Returns the complaints of a pool with this policy, whose program ends well.
fn complaints(policy: &str, run: Run) -> Vec<String> {
    let run = run.env("GPUSHIM_POLICY", policy).may_complain();
    let (_, shim) = run.both();
    assert_eq!(shim.code, 0, "{policy}: {}", shim.stdout);
    shim.complaints().into_iter().map(String::from).collect()
}

/// Checks that with each policy the two complaints begin with a function and its error code.
fn assert_steps_aside(function: &str, code: u32, run: impl Fn() -> Run) {
    let named = format!("gpushim: device 0: {function} gave {code}");
    for policy in ["auto", "vmm", "blocks"] {
        let complaints = complaints(policy, run());
        let all = complaints.iter().all(|line| line.starts_with(&named));
        assert!(all && complaints.len() == 2, "{policy}: {complaints:?}");
    }
}

#[test]
fn a_pool_that_is_refused_pages_steps_aside() {
    for function in FUNCTIONS {
        let run = || Run::new(program("pages_refused")).older_driver(&[function]);
        assert_steps_aside(function, 500, run);
    }
}

#[test]
fn pages_that_are_refused_for_the_want_of_memory_that_is_there_are_refused() {
    for function in FUNCTIONS {
        let fault = format!("{function}:1+:2");
        let run = || Run::new(program("pages_refused")).env("STANDIN_FAULT", &fault);
        assert_steps_aside(function, 2, run);
    }
}

/// Another process had the memory and gave it back: the pool goes on with pages.
#[test]
fn memory_that_is_there_again_is_no_refusal() {
    for policy in ["auto", "vmm"] {
        for calls in 1..8 {
            let fault = format!("cuMemCreate:1-{calls}:2");
            let run = Run::new(program("pages_refused")).env("STANDIN_FAULT", fault);
            let none: [&str; 0] = [];
            assert_eq!(complaints(policy, run), none, "{calls} calls fail");
        }
    }
}
