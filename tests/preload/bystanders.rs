//! Processes that have nothing to do with CUDA.

use std::time::Duration;

use crate::support::{Run, place, program};

/// Checks that the output is the same. Only the program's own files may exist.
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

/// Error number, threads, descriptors and visible parts of CUDA are as natively, through some
/// `exec`s.
#[test]
fn a_program_sees_nothing_of_it() {
    let (native, shim) = Run::new(program("bystander")).arg("3").both();
    assert_eq!(native.stdout.lines().count(), 4 * 8, "{}", native.stdout);
    assert!(native.stdout.starts_with("errno 0 0, threads 3, "));
    assert_eq!(native.stdout.matches("present").count(), 0);
    assert_eq!(shim.files(), [] as [&str; 0]);
}

/// Weak references to CUDA functions find the shim's functions.
///
/// The shim cannot distinguish such a program from a program linked against CUDA. The functions
/// then return the errors of the stub library of CUDA's toolkit.
#[test]
fn a_function_of_cuda_without_cuda_says_so() {
    let run = Run::new(program("weak"));
    let (native, shim) = (run.native(), run.shim());
    assert_eq!(native.stdout.matches(" -1\n").count(), 5);
    assert_eq!(
        shim.stdout,
        "cudaMalloc 34\ncudaFree 34\ncuMemAlloc_v2 34\ncuMemFree_v2 34\nncclCommInitAll 2\nuntouched 1\n"
    );
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
