//! A process with more rights than the user who started it: the environment tells the shim nothing.

use std::ffi::OsStr;

use crate::support::{Run, program_with};

fn run() -> Run {
    Run::new(program_with("privileged", &[OsStr::new("-rdynamic")]))
        .env("GPUSHIM_TAKEOVER", "all")
        .env("NVTX_INJECTION64_PATH", "/nowhere/profiler.so")
}

#[test]
fn the_environment_of_a_privileged_process_is_not_followed() {
    let run = run()
        .env("PRIVILEGED", "1")
        .env("GPUSHIM_POLICY", "a value that would be complained of");
    let (native, shim) = run.both();
    assert_eq!(native.code, 0, "{}", native.stdout);
    assert!(native.stdout.contains("NVTX_INJECTION64_PATH: "));
    assert_eq!(shim.files(), [] as [&str; 0], "no trace, and no file else");
}

#[test]
fn that_of_another_process_is() {
    let native = run().native();
    let shim = run().shim();
    for (name, line) in native.stdout.lines().zip(shim.stdout.lines()) {
        assert_ne!(name, line, "each variable has another value");
    }
    assert_eq!(shim.files().len(), 1, "a trace: {:?}", shim.files());
}
