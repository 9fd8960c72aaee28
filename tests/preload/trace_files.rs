//! The files of a trace under programs that close, truncate, move and delete files, their own and
//! others.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use gpushim_trace::Trace;

use crate::support::{Outcome, Run, program};

/// Run of `trace_files`, which does `what`, and allocates this number of times after `ms`
/// milliseconds.
fn run(what: &str, allocations: u64, ms: u64) -> Run {
    Run::new(program("trace_files"))
        .args([what, &allocations.to_string(), &ms.to_string()])
        .env("GPUSHIM_SPOOL_FLOOR", "0")
}

fn full(what: &str, allocations: u64, ms: u64) -> Run {
    run(what, allocations, ms)
        .env("GPUSHIM_TRACE_MODE", "full")
        .env("GPUSHIM_TRACE_SIZE", "64M")
}

/// The one file whose name ends so.
fn file(outcome: &Outcome, end: &str) -> PathBuf {
    let mut names = outcome.files();
    names.retain(|name| name.ends_with(end));
    assert_eq!(names.len(), 1, "{:?}", outcome.files());
    outcome.folder().join(&names[0])
}

fn trace(outcome: &Outcome) -> Trace {
    let path = file(outcome, ".trace");
    Trace::open(&path).unwrap_or_else(|error| panic!("failed to {error}"))
}

/// One line each, and these words in the first of them.
fn said(outcome: &Outcome, words: &[&str]) {
    let lines = outcome.complaints();
    assert_eq!(lines.len(), usize::from(!words.is_empty()), "{lines:?}");
    for word in words {
        assert!(
            lines[0].starts_with("gpushim: ") && lines[0].contains(word),
            "{lines:?}"
        );
    }
}

#[test]
fn a_program_that_closes_all_descriptors_finds_only_its_own_bytes_in_its_files() {
    let (_, outcome) = full("close", 100_000, 0).both();
    for file in 0..8 {
        let content = fs::read(outcome.folder().join(format!("data.{file}"))).expect("a data file");
        assert_eq!(content, b"data", "data.{file}");
    }
    // And the spool went on.
    let trace = trace(&outcome);
    assert_eq!(trace.problems(), [] as [&str; 0]);
    assert_eq!((trace.spooled(), trace.lost()), (trace.recorded(), 0));
    assert!(trace.recorded() >= 200_200, "{}", trace.recorded());
}

#[test]
fn a_truncated_trace_ends_nothing_and_is_said_once() {
    for (what, bytes) in [("truncate", 0), ("halve", 300_000)] {
        // At once: the program's threads come upon it; later: the background thread sees it first.
        for ms in [0, 1200] {
            let (_, outcome) = run(what, 20_000, ms).may_complain().both();
            said(&outcome, &["was truncated", "the program runs on"]);
            let meta = fs::metadata(file(&outcome, ".trace")).expect("the trace");
            assert_eq!(meta.len(), bytes, "{what}");
        }
        let (_, outcome) = full(what, 40_000, 0).may_complain().both();
        said(&outcome, &["was truncated"]);
    }
}

#[test]
fn a_file_that_is_moved_or_deleted_is_written_no_more_and_no_other_in_its_place() {
    for what in ["remove", "rename"] {
        let (_, outcome) = run(what, 20_000, 0).both();
        let (_, with_spool) = full(what, 40_000, 0).may_complain().both();
        said(&with_spool, &["spool", "the trace keeps the newest"]);
        if what == "remove" {
            assert_eq!(outcome.files(), [] as [&str; 0]);
            assert_eq!(with_spool.files(), [] as [&str; 0]);
            continue;
        }
        // The new file at the name is empty, and the trace continues in the moved file.
        let meta = fs::metadata(file(&with_spool, ".trace")).expect("the file in its place");
        assert_eq!(meta.len(), 0);
        let moved = Trace::open(&file(&outcome, ".trace.moved")).expect("the moved trace");
        assert_eq!(moved.problems(), [] as [&str; 0]);
        assert!(moved.recorded() >= 40_200, "{}", moved.recorded());
    }
}

#[test]
fn faults_of_the_programs_own_are_as_natively() {
    // A handler from before the trace, a fault without a handler, and a signal from a call.
    for what in ["own", "fault", "raise"] {
        let (native, _) = run(what, 100, 0).both();
        assert_eq!(native.code == 0, what == "own", "{what}: {}", native.code);
    }
}

#[test]
fn a_short_process_leaves_a_small_file_that_is_private() {
    let outcome = Run::new(program("once"))
        .env("GPUSHIM_TRACE_SIZE", "64M")
        .may_complain()
        .shim();
    let meta = fs::metadata(file(&outcome, ".trace")).expect("the trace");
    assert!(
        meta.blocks() * 512 <= 1 << 20,
        "{} bytes",
        meta.blocks() * 512
    );
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
}

#[test]
fn short_processes_take_a_mebibyte_each_at_most() {
    let mut taken = 0;
    for _ in 0..120 {
        // A trace of the default size.
        let outcome = Run::new(program("once"))
            .env("GPUSHIM_TRACE_SIZE", "")
            .may_complain()
            .shim();
        let meta = fs::metadata(file(&outcome, ".trace")).expect("the trace");
        assert!(meta.len() > 64 << 20, "{} bytes", meta.len());
        taken += meta.blocks() * 512;
    }
    assert!(taken <= 120 << 20, "{taken} bytes");
}

/// Runs a program with a limit of address space in KiB.
fn with_addresses(kib: u64) -> Run {
    Run::new("/bin/sh")
        .args(["-c", "ulimit -v \"$0\" && exec \"$@\"", &kib.to_string()])
        .arg(program("trace_files"))
        .args(["nothing", "1000", "0"])
        .env("GPUSHIM_TRACE_SIZE", "64M")
        .may_complain()
}

#[test]
fn a_process_with_few_addresses_left_goes_on_without_a_trace() {
    let (mut with, mut without) = (0, 0);
    for kib in [
        90_000, 100_000, 110_000, 120_000, 130_000, 140_000, 160_000, 400_000,
    ] {
        let run = with_addresses(kib);
        let native = run.native();
        if native.code != 0 {
            continue;
        }
        let outcome = run.shim();
        assert_eq!(
            (&outcome.told()[..], outcome.code),
            ("done\n", 0),
            "{kib}: {}",
            outcome.stderr
        );
        let lines = outcome.complaints();
        if outcome.files().is_empty() {
            // There are no addresses for a pool in pages either.
            let pages = "gpushim: device 0: cuMemAddressReserve gave 2;";
            let (pages, others): (Vec<&str>, Vec<&str>) =
                lines.iter().partition(|line| line.starts_with(pages));
            assert_eq!((pages.len(), others.len()), (1, 1), "{kib}: {lines:?}");
            assert!(others[0].contains("without one"), "{kib}: {lines:?}");
            without += 1;
        } else {
            with += 1;
        }
    }
    assert!(with > 0 && without > 0, "{with} {without}");
}

#[test]
fn secrets_in_the_command_line_are_masked_and_all_of_it_can_be_left_out() {
    let facts = |wanted: Option<&str>| {
        let mut run = run("nothing", 100, 0).args(["--api-token=hush", "--password", "hush"]);
        if let Some(wanted) = wanted {
            run = run.env("GPUSHIM_TRACE_FACTS", wanted);
        }
        let outcome = run.shim();
        let bytes = fs::read(file(&outcome, ".trace")).expect("the trace");
        let tells = |word: &[u8]| bytes.windows(word.len()).any(|found| found == word);
        let trace = trace(&outcome);
        let hosts = trace.fact("host").is_some_and(|host| !host.is_empty());
        (
            tells(b"hush"),
            trace.fact("argv"),
            hosts,
            tells(b"trace_files"),
        )
    };
    let (hush, argv, host, name) = facts(None);
    let argv = argv.expect("a command line");
    assert!(
        argv.ends_with("nothing 100 0 '--api-token=***' --password '***'"),
        "{argv}"
    );
    assert_eq!((hush, host, name), (false, true, true));
    let (hush, argv, ..) = facts(Some("all"));
    assert!(hush && argv.is_some_and(|argv| argv.ends_with("--password hush")));
    assert_eq!(facts(Some("none")), (false, None, false, false));
}
