//! Problems of the environment are reported in one line, and the program runs on.

use std::fs;
use std::process::Command;

use gpushim_trace::{Layer, Trace};

use crate::support::{Outcome, Run, program};

/// Checks the program's own output and exit code.
fn is_itself(outcome: &Outcome) {
    assert_eq!(
        (&outcome.stdout[..], outcome.code),
        ("the program's output\n", 7),
        "{}",
        outcome.stderr
    );
}

/// The shim's lines on standard error. Checks the program's own output, too.
fn ours(outcome: &Outcome) -> Vec<String> {
    is_itself(outcome);
    assert_eq!(
        outcome.stderr.matches("the program's complaint\n").count(),
        1,
        "{}",
        outcome.stderr
    );
    let lines: Vec<_> = outcome
        .stderr
        .lines()
        .filter(|line| *line != "the program's complaint")
        .map(str::to_owned)
        .collect();
    assert!(
        lines.iter().all(|line| line.starts_with("gpushim: ")),
        "{}",
        outcome.stderr
    );
    lines
}

fn once() -> Run {
    Run::new(program("once")).may_complain()
}

#[test]
fn nothing_is_said_when_nothing_is_wrong() {
    assert_eq!(ours(&once().shim()), [] as [&str; 0]);
}

#[test]
fn a_bad_variable_is_named_with_its_value_and_what_it_accepts() {
    let cases = [
        ("GPUSHIM_POLICY", "fancy", "blocks"),
        ("GPUSHIM_REUSE", "never", "order"),
        ("GPUSHIM_LIMIT", "12Q", "512M"),
        ("GPUSHIM_CACHE_MAX", "-1", "512M"),
        ("GPUSHIM_DECAY", "soon", "500ms"),
        ("GPUSHIM_TRACE", "%x.trace", "path"),
        ("GPUSHIM_TRACE_SIZE", "1", "64K"),
        ("GPUSHIM_TRACE_FACTS", "some", "masked"),
        ("GPUSHIM_TENSORS", "some", "auto"),
        ("GPUSHIM_LOG", "loud", "warn"),
    ];
    for (name, value, accepted) in cases {
        let lines = ours(&once().env(name, value).shim());
        assert_eq!(lines.len(), 1, "{name}: {lines:?}");
        for part in [name, value, accepted] {
            assert!(lines[0].contains(part), "{part} is not in {lines:?}");
        }
    }
    // Each has one line of its own, for any number of threads and calls.
    let both = ours(
        &once()
            .env("GPUSHIM_POLICY", "fancy")
            .env("GPUSHIM_REUSE", "never")
            .shim(),
    );
    assert_eq!(both.len(), 2, "{both:?}");
}

/// A trace that cannot be made: one line with its path, and the program runs on.
fn no_trace(outcome: &Outcome, path: &str) {
    let lines = ours(outcome);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("trace") && lines[0].contains(path),
        "{lines:?}"
    );
}

#[test]
fn a_trace_that_cannot_be_written() {
    for path in [
        "/proc/nowhere/x.trace",
        "/proc/x.trace",
        "/dev/null/x.trace",
    ] {
        no_trace(&once().env("GPUSHIM_TRACE", path).shim(), path);
    }
    let file = once().env("GPUSHIM_TRACE", "{}/.out/x.trace").shim();
    no_trace(&file, ".out/x.trace");
}

#[test]
fn a_trace_beyond_the_limit_on_file_sizes() {
    let run = Run::new(program("limited_files"))
        .arg("200000")
        .arg(program("once"))
        // The stand-in's memory that other processes can map is a file, too.
        .env("GPUSHIM_POLICY", "blocks")
        .may_complain();
    let outcome = run.env("GPUSHIM_TRACE", "{}/x.trace").shim();
    no_trace(&outcome, "x.trace");
    assert!(
        !outcome.files().contains(&"x.trace".to_owned()),
        "half a trace is left: {:?}",
        outcome.files()
    );
}

#[test]
fn a_full_disk() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    // A file system of its own, as small as they come; only root may.
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m", "gpushim-test"])
        .arg(folder.path())
        .output();
    if !mount.is_ok_and(|output| output.status.success()) {
        println!("not run: this user may not mount a file system");
        return;
    }
    let path = folder.path().join("x.trace");
    // Far more events than 4 MiB hold.
    let run = |size: &str| {
        let run = Run::new(program("trace_files")).args(["nothing", "100000", "0"]);
        run.env("GPUSHIM_TRACE", &path)
            .env("GPUSHIM_TRACE_SIZE", size)
            .may_complain()
            .shim()
    };
    let full = run("16M");
    let trace = Trace::open(&path).map(|trace| {
        let sums = trace.totals().expect("sums").layer(Layer::Device);
        let counts = (trace.recorded(), trace.readable() + trace.lost());
        (sums, counts, trace.readable(), trace.problems().to_vec())
    });
    let _ = fs::write(folder.path().join("rest"), vec![1; 8 << 20]);
    let _ = fs::remove_file(&path);
    let left = fs::metadata(folder.path().join("rest")).map(|meta| meta.len());
    let _ = fs::write(folder.path().join("again"), vec![1; 8 << 20]);
    let none = run("16M");
    let _ = Command::new("umount").arg(folder.path()).output();
    // A disk that becomes full: the newest events in the available space, the others counted, and
    // one line.
    assert_eq!((&full.told()[..], full.code), ("done\n", 0));
    let lines = full.complaints();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("full") && lines[0].contains("x.trace"),
        "{lines:?}"
    );
    let (sums, (recorded, counted), readable, problems) = trace.expect("a trace");
    assert_eq!(problems, [] as [&str; 0]);
    assert_eq!((sums.allocations, sums.frees), (100_100, 100_100));
    assert!(
        recorded >= 200_200 && recorded == counted,
        "{recorded} {counted}"
    );
    // The disk holds 65,536 events and nothing else.
    assert!((20_000..65_536).contains(&readable), "{readable}");
    // One that is full from the start: no trace.
    assert!(
        left.is_ok_and(|bytes| bytes < 4 << 20),
        "the disk was never full"
    );
    assert_eq!((&none.told()[..], none.code), ("done\n", 0));
    let lines = none.complaints();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("without one"), "{lines:?}");
}

#[test]
fn traces_can_be_turned_off() {
    let outcome = once().env("GPUSHIM_TRACE", "off").shim();
    assert_eq!(ours(&outcome), [] as [&str; 0]);
    assert_eq!(outcome.files(), [] as [&str; 0]);
}

#[test]
fn a_closed_standard_error_is_no_reason_to_die() {
    let script = "exec \"$0\" 2>&-";
    let run = Run::new("/bin/sh")
        .arg("-c")
        .arg(script)
        .arg(program("once"));
    is_itself(
        &run.env("GPUSHIM_POLICY", "fancy")
            .env("GPUSHIM_TRACE", "/nowhere/x")
            .shim(),
    );
}
