//! `GPUSHIM=off`: the preloaded library does nothing.

use crate::support::{Run, program};

fn switched(value: &str) -> Run {
    Run::new(program("kill_switch"))
        .env("GPUSHIM", value)
        .env("GPUSHIM_TAKEOVER", "torch")
        .env("GPUSHIM_STACKS", "all")
}

/// No function of CUDA is the library's by any look-up; threads, descriptors, variables and files
/// are as natively.
#[test]
fn no_hook_no_thread_and_no_file() {
    for off in ["off", "0"] {
        let (native, shim) = switched(off).both();
        assert_eq!(native.stdout, shim.stdout);
        assert!(
            shim.stdout.contains("by default: libcuda.so"),
            "{}",
            shim.stdout
        );
        assert_eq!(shim.stderr, "");
        assert_eq!(shim.files(), [] as [&str; 0]);
    }
}

/// Checks that the program of the test above tells hooks, threads and variables where there are any.
#[test]
fn the_program_tells_hooks_threads_and_variables() {
    let shim = switched("on").shim();
    for line in [
        "in the driver: libgpushim.so",
        "by default: libgpushim.so",
        "cuGetProcAddress: libgpushim.so",
        "NVTX: set, PyTorch: set",
    ] {
        assert!(shim.stdout.contains(line), "{line}: {}", shim.stdout);
    }
    assert!(!shim.stdout.contains("threads 1,"), "{}", shim.stdout);
    assert_eq!(shim.traces().len(), 1);
}

/// A program that is linked against the driver binds the library's exports: they forward.
#[test]
fn calls_of_a_linked_program_are_forwarded() {
    let run = Run::new(program("basics")).env("GPUSHIM", "off");
    let (native, shim) = run.may("double free").both();
    assert_eq!(native.stdout, shim.stdout);
    assert_eq!(shim.files(), [] as [&str; 0]);
}
