//! `gpushim_malloc` and `gpushim_free`, as a library author or PyTorch's plug-in mechanism calls
//! them.

use std::path::PathBuf;
use std::process::Command;

use gpushim_trace::{Class, Kind, flags};
use tempfile::TempDir;

use crate::support::{Outcome, Run, place, program};

const BLIND: &str = "gpushim: libgpushim.so was loaded after the start, so gpushim_malloc takes memory from the \
                     driver's own pools; preload it (LD_PRELOAD) for ours";

/// The library by its path: as PyTorch loads it, preloaded or not.
fn run(part: &str) -> Run {
    Run::new(program("plugin"))
        .arg(&place().shim)
        .arg(part)
        .env("GPUSHIM_TRACE", "{}/%p.trace")
        .env("STANDIN_DEVICES", "2")
        .env("STANDIN_MEMORY", "1G")
        .may_complain()
}

/// Every block of the notes is in the trace with its device, size and stream. Returns how many of
/// them the driver had to give.
fn forwarded(outcome: &Outcome) -> usize {
    let trace = outcome.trace();
    let events = trace.class(Kind::Alloc, Class::PoolAsync);
    let noted: Vec<_> = outcome
        .notes("block")
        .iter()
        .map(|words| {
            words
                .iter()
                .map(|word| word.parse::<u64>().expect("a number"))
                .collect::<Vec<_>>()
        })
        .collect();
    // The legacy stream has two names.
    let legacy = |stream: u64| stream.max(1);
    let seen = events
        .iter()
        .map(|event| (event.device.into(), event.size, legacy(event.extra[0])));
    let noted = noted
        .iter()
        .map(|words| (words[0], words[1], legacy(words[2])));
    assert_eq!(seen.collect::<Vec<_>>(), noted.collect::<Vec<_>>());
    assert_eq!(
        trace.class(Kind::Free, Class::PoolAsync).len(),
        events.len(),
        "every block was freed"
    );
    events
        .iter()
        .filter(|event| event.flags & flags::FORWARDED != 0)
        .count()
}

/// Loaded late and preloaded, the program sees the same; which of the two it was, the trace says.
fn alike(part: &str) -> (Outcome, Outcome) {
    let (late, preloaded) = run(part).both();
    assert_eq!(late.code, 0, "{}", late.stdout);
    assert!(late.stdout.ends_with("done\n"), "{}", late.stdout);
    assert_eq!(late.complaints(), [BLIND]);
    assert_eq!(preloaded.complaints(), [] as [&str; 0]);
    assert_eq!(
        late.trace().facts("exports"),
        ["the driver's own pools: the library is not preloaded"]
    );
    assert_eq!(preloaded.trace().facts("exports"), [] as [&str; 0]);
    let blocks = late.notes("block").len();
    assert!(blocks > 0);
    assert_eq!(forwarded(&late), blocks);
    (late, preloaded)
}

#[test]
fn blocks_move_between_streams_in_order() {
    let (_, preloaded) = alike("streams");
    assert_eq!(forwarded(&preloaded), 0);
    let allocated = preloaded.trace().class(Kind::Alloc, Class::PoolAsync);
    for flag in [flags::HIT, flags::ORDERED] {
        let count = allocated.iter().filter(|event| event.flags & flag != 0);
        assert!(count.count() > 5, "flag {flag:#x}: {allocated:?}");
    }
    assert!(
        preloaded.stdout.contains("used 0, reserved 0\n"),
        "{}",
        preloaded.stdout
    );
}

#[test]
fn every_policy_serves_them() {
    for policy in ["vmm", "blocks", "off"] {
        let (_, preloaded) = run("streams").env("GPUSHIM_POLICY", policy).both();
        let expected = if policy == "off" { 60 } else { 0 };
        assert_eq!(forwarded(&preloaded), expected, "{policy}");
    }
}

#[test]
fn the_argument_names_the_device() {
    let (_, preloaded) = alike("devices");
    assert_eq!(forwarded(&preloaded), 0);
    for line in [
        "before: the second device's primary context is not active",
        "after: the second device's primary context is active",
        "on 1 and 0, current 0",
        "on 1, current 0",
        "without a context: on 1, then current -1",
        "on 1, in a context of our own: 1",
    ] {
        assert!(
            preloaded.stdout.lines().any(|found| found == line),
            "{line}: {}",
            preloaded.stdout
        );
    }
}

#[test]
fn nothing_too_much_and_default_streams() {
    let (_, preloaded) = alike("edges");
    assert_eq!(forwarded(&preloaded), 0);
    for line in ["nothing: 0, less: 0", "too much: 0", "used 0"] {
        assert!(preloaded.stdout.contains(line), "{}", preloaded.stdout);
    }
    let refused = preloaded.trace().count(Kind::OutOfMemory, Class::PoolAsync);
    assert_eq!(refused, 1, "the request that was too much");
}

#[test]
fn a_block_of_a_capture_is_the_graphs() {
    let (_, preloaded) = alike("capture");
    // The one in the capture.
    assert_eq!(forwarded(&preloaded), 1);
    assert!(
        preloaded.stdout.contains("nodes: 10 2 11\n"),
        "{}",
        preloaded.stdout
    );
}

#[test]
fn mistakes_are_one_line_and_lose_nothing() {
    let (late, preloaded) = run("mistakes").both();
    let lines = ["gpushim: gpushim_malloc failed: CUDA error 101"];
    assert_eq!(preloaded.complaints(), lines);
    assert_eq!(late.complaints(), [&lines[..], &[BLIND]].concat());
    // The free in the capture did nothing, the next one did.
    assert!(
        preloaded.stdout.contains("used 6000\nused 0\n"),
        "{}",
        preloaded.stdout
    );
}

#[test]
fn a_preloaded_library_is_found_without_its_path() {
    let by_path = run("streams").shim();
    let found = Run::new(program("plugin"))
        .args(["-", "streams"])
        .env("STANDIN_DEVICES", "2")
        .env("STANDIN_MEMORY", "1G")
        .shim();
    assert_eq!(found.told(), by_path.told());
    assert_eq!(forwarded(&found), 0);
}

#[test]
fn a_library_that_came_late_takes_nothing_over() {
    let (late, preloaded) = run("edges").env("GPUSHIM_TAKEOVER", "torch").both();
    assert_eq!(late.notes("takeover"), [["none"]]);
    assert_eq!(preloaded.notes("takeover"), [["backend:cudaMallocAsync"]]);
    assert_eq!(late.trace().facts("takeover.torch"), [] as [&str; 0]);
}

/// Declarations of the driver's header that the page's example needs.
const CUDA_H: &str = "#include <stddef.h>\n\
    typedef int CUresult;\n\
    typedef unsigned long long CUdeviceptr;\n\
    typedef struct context *CUcontext;\n\
    typedef struct stream *CUstream;\n\
    typedef struct event *CUevent;\n\
    enum { CUDA_SUCCESS = 0, CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DISABLE_TIMING = 2 };\n\
    CUresult cuInit(unsigned), cuDevicePrimaryCtxRetain(CUcontext *, int), cuCtxSetCurrent(CUcontext);\n\
    CUresult cuStreamCreate(CUstream *, unsigned), cuEventCreate(CUevent *, unsigned), cuCtxSynchronize(void);\n\
    CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream), cuMemFreeAsync(CUdeviceptr, CUstream);\n\
    CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream);\n\
    CUresult cuEventRecord(CUevent, CUstream), cuStreamWaitEvent(CUstream, CUevent, unsigned);\n";

/// The program of `docs/library-authors.md`, built as a reader would.
fn example(folder: &TempDir) -> PathBuf {
    let page = include_str!("../../docs/library-authors.md");
    let program = page.split("```c\n").nth(1).expect("an example in C");
    let program = program.split("```").next().expect("its end");
    let file = |name: &str| folder.path().join(name);
    let written = std::fs::write(file("example.c"), program);
    written
        .and_then(|()| std::fs::write(file("cuda.h"), CUDA_H))
        .expect("files in a temporary folder");
    let output = Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .args([file("example"), file("example.c")])
        .arg("-I")
        .arg(folder.path())
        .arg("-I")
        .arg(place().root.join("include"))
        .arg("-L")
        .arg(&place().libraries)
        .args(["-l:libcuda.so.1", "-ldl"])
        .output()
        .expect("gcc, which these tests need");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    file("example")
}

#[test]
fn the_example_of_the_page_works() {
    let folder = TempDir::new().expect("a temporary folder");
    let run = Run::new(example(&folder));
    let native = run.native();
    assert_eq!(
        (native.code, &native.stdout[..]),
        (0, "memory from the driver\n")
    );
    let shim = run.shim();
    assert_eq!((shim.code, &shim.stdout[..]), (0, "memory from gpushim\n"));
    let trace = shim.trace();
    for kind in [Kind::Alloc, Kind::Free] {
        assert_eq!(trace.count(kind, Class::PoolAsync), 100);
    }
}
