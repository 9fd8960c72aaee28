//! Pools on a driver that refuses pages of virtual memory.

use crate::support::{Run, program};

#[test]
fn a_pool_that_is_refused_pages_steps_aside() {
    for absent in [
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
    ] {
        for policy in ["auto", "vmm", "blocks"] {
            let (_, shim) = Run::new(program("pages_refused"))
                .older_driver(&[absent])
                .env("GPUSHIM_POLICY", policy)
                .may_complain()
                .both();
            assert_eq!(shim.code, 0, "without {absent}: {}", shim.stdout);
            let complaints = shim.complaints();
            let named = format!("gpushim: device 0: {absent} gave 500");
            let all = complaints.iter().all(|line| line.starts_with(&named));
            assert!(all && complaints.len() == 2, "{policy}: {complaints:?}");
        }
    }
}

#[test]
fn pages_that_are_refused_for_the_want_of_memory_that_is_there_are_refused() {
    for function in [
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
    ] {
        for policy in ["auto", "vmm", "blocks"] {
            let (_, shim) = Run::new(program("pages_refused"))
                .env("STANDIN_FAULT", format!("{function}:1+:2"))
                .env("GPUSHIM_POLICY", policy)
                .may_complain()
                .both();
            assert_eq!(shim.code, 0, "{policy} {function}: {}", shim.stdout);
            let complaints = shim.complaints();
            let named = format!("gpushim: device 0: {function} gave 2");
            let all = complaints.iter().all(|line| line.starts_with(&named));
            assert!(all && complaints.len() == 2, "{policy}: {complaints:?}");
        }
    }
}

/// Another process had the memory and gave it back: the pool goes on with pages.
#[test]
fn memory_that_is_there_again_is_no_refusal() {
    for policy in ["auto", "vmm"] {
        let run = |calls: u64| {
            let (_, shim) = Run::new(program("pages_refused"))
                .env("STANDIN_FAULT", format!("cuMemCreate:1-{calls}:2"))
                .env("GPUSHIM_POLICY", policy)
                .may_complain()
                .both();
            assert_eq!(shim.code, 0, "{policy}: {}", shim.stdout);
            shim.complaints().len()
        };
        for calls in 1..8 {
            assert_eq!(run(calls), 0, "{policy}: {calls} calls fail");
        }
    }
}
