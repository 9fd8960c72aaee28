//! Processes that have nothing to do with CUDA.

use std::time::Duration;

use crate::support::{Run, place};

/// The same output, nothing more, and no file but those that it makes itself.
fn untouched(program: &str, arguments: &[&str], files: &[&str]) {
    let (native, shim) = Run::new(program).args(arguments).both();
    assert_eq!(native.stdout, shim.stdout);
    assert_eq!(shim.files(), files);
}

#[test]
fn ls_a_shell_and_gcc_are_left_alone() {
    untouched("/bin/ls", &["-l", "/usr/share"], &[]);
    untouched(
        "/bin/sh",
        &["-c", "for i in 1 2 3; do echo $i | cat; done; (exit 3)"],
        &[],
    );
    untouched("/bin/sh", &["-c", "kill -9 $$"], &[]);
    let compile = "echo 'int main(void) { return 0; }' >x.c && gcc x.c -o x && ./x && rm x x.c && echo compiled";
    untouched("/bin/sh", &["-c", compile], &[]);
}

#[test]
fn a_program_that_loads_the_driver_and_asks_it_nothing_leaves_no_trace() {
    let script =
        "import ctypes, os\nlibrary = ctypes.CDLL('libcuda.so.1')\nprint(library.cuInit(0))\n";
    let (_, shim) = Run::new("/usr/bin/env")
        .args(["python3", "-c", script])
        .both();
    assert_eq!(shim.files(), [] as [&str; 0]);
}

#[test]
fn what_it_costs_them() {
    const RUNS: usize = 50;
    let mut times = [Vec::new(), Vec::new()];
    let run = Run::new("/bin/true");
    let _ = place();
    for _ in 0..RUNS {
        times[0].push(run.native().wall);
        times[1].push(run.shim().wall);
    }
    let [native, shim] = times.map(|mut times| {
        times.sort();
        times[RUNS / 2]
    });
    let added = shim.saturating_sub(native);
    println!(
        "median of {RUNS} runs of true: {native:?} natively, {shim:?} preloaded, {added:?} more"
    );
    // The claim of 1 ms is for scripts/bench, on a quiet machine and in release mode.
    assert!(added < Duration::from_millis(20), "{added:?} more");
}
