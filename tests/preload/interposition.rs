//! The dynamic linker with us in it behaves as without us.

use std::ffi::OsStr;

use gpushim_trace::{Class, Kind};

use crate::support::{Outcome, Run, library, program, program_with};

fn allocations(outcome: &Outcome) -> usize {
    outcome.trace().count(Kind::Alloc, Class::Device)
}

#[test]
fn every_kind_of_handle_finds_what_it_finds_natively() {
    let (_, shim) = Run::new(program("scopes"))
        .arg(library("lib_plugin", &[]))
        .both();
    for line in [
        "plugin's symbol by the plugin: plugin_secret",
        "plugin's symbol by the program: ? in ?",
    ] {
        assert!(shim.stdout.contains(line), "{line}: {}", shim.stdout);
    }
    // A handle, RTLD_DEFAULT and RTLD_NEXT all lead to the shim. Functions without a hook are the
    // driver's.
    let found = |name: &str| shim.notes(name).concat().join(" ");
    assert_eq!(
        found("cuMemAlloc_v2"),
        "libgpushim.so libgpushim.so libgpushim.so"
    );
    assert_eq!(
        found("cuDeviceGet"),
        "libcuda.so.1 libcuda.so.1 libcuda.so.1"
    );
    assert_eq!(found("cuNothing"), "? ? ?");
    assert_eq!(allocations(&shim), 3);
}

/// Works beside another preloaded library, which gets its calls whichever of the two comes first.
fn beside(name: &str, line: &str, seen_before: usize) {
    let other = library(name, &[]);
    let run = Run::new(program("companions"));
    let native = run.clone().preload_after(&other).native();
    assert!(native.stdout.contains(line), "{}", native.stdout);
    let before = run.clone().preload_before(&other).shim();
    let after = run.preload_after(&other).shim();
    for (order, shim, seen) in [("before", before, seen_before), ("after", after, 20)] {
        assert_eq!(
            (shim.told(), shim.code),
            (native.told(), 0),
            "{name} {order} us"
        );
        assert_eq!(
            shim.traces()
                .iter()
                .map(|trace| trace.count(Kind::Alloc, Class::Device))
                .sum::<usize>(),
            seen,
            "{name} {order} us"
        );
    }
}

#[test]
fn a_second_library_that_exports_dlsym() {
    // Loaded before the shim, it bypasses the shim: its dlvsym finds only glibc's dlsym, because
    // the shim's has no version. The program works.
    beside("lib_second_dlsym", "second dlsym used: 1\n", 0);
}

#[test]
fn a_second_library_that_interposes_malloc_through_rtld_next() {
    beside("lib_malloc", "malloc counted: 1\n", 20);
}

#[test]
fn a_library_that_stands_in_front_of_a_driver_function_too() {
    // It finds its next by a handle of the driver's, and so us: both see every call.
    let other = library("lib_unsafe", &[]);
    let run = Run::new(program("companions"))
        .env("DOOR", "default")
        .preload_before(other);
    let shim = run.shim();
    assert_eq!(shim.code, 0, "{}", shim.stdout);
    // All sizes differ, so it asks for each of them once.
    assert_eq!(allocations(&shim), 20);
}

#[test]
fn a_deepbind_plugin_works_and_is_named_in_the_trace() {
    let plugin = library("lib_uses_driver", &[OsStr::new("-l:libcuda.so.1")]);
    let (_, shim) = Run::new(program("deepbind")).arg(&plugin).both();
    let trace = shim.trace();
    assert_eq!(
        trace.facts("deepbind"),
        [plugin.to_str().expect("a path in UTF-8")]
    );
    let sizes: Vec<_> = trace
        .class(Kind::Alloc, Class::Device)
        .iter()
        .map(|event| event.size)
        .collect();
    assert_eq!(
        sizes.iter().filter(|size| **size == 3000).count(),
        2,
        "{sizes:?}"
    );
}

#[test]
fn a_program_that_is_linked_against_the_driver() {
    let linked = program_with("linked", &[OsStr::new("-l:libcuda.so.1")]);
    let (_, shim) = Run::new(linked).both();
    assert_eq!(allocations(&shim), 4);
}

#[test]
fn a_plugin_that_is_linked_against_the_driver() {
    let plugin = library("lib_uses_driver", &[OsStr::new("-l:libcuda.so.1")]);
    // Not deep: it is bound to us.
    let (_, shim) = Run::new(program("deepbind"))
        .arg(&plugin)
        .env("SHALLOW", "1")
        .both();
    let sizes: Vec<_> = shim
        .trace()
        .class(Kind::Alloc, Class::Device)
        .iter()
        .map(|event| event.size)
        .collect();
    assert_eq!(
        sizes.iter().filter(|size| **size == 70_000).count(),
        3,
        "{sizes:?}"
    );
    assert!(shim.trace().facts("deepbind").is_empty());
}

#[test]
fn a_stack_walk_goes_through_us_to_main() {
    let walker = library("lib_unwind", &[]);
    let (_, shim) = Run::new(program_with(
        "unwind",
        &[OsStr::new("-rdynamic"), OsStr::new("-fvisibility=default")],
    ))
    .arg(walker)
    .both();
    // At the third, one of the walks is within our own look-up.
    let walks: Vec<_> = shim.notes("walks").concat();
    assert!(
        walks.last().is_some_and(|walks| *walks > "1"),
        "{}",
        shim.stdout
    );
    assert_eq!(
        shim.stdout
            .matches("all walks reached main and ended: 1\n")
            .count(),
        3,
        "{}",
        shim.stdout
    );
}
