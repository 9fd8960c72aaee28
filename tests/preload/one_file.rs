//! A trace is one file: small at the end, made with its folders, and readable when it is copied.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use gpushim_trace::Trace;
use gpushim_trace::attached::{self, Attached};

use crate::support::{Outcome, Run, program};

/// A shell script with the command as `$gpushim` and `paced` as `$paced`.
fn script(text: &str) -> Outcome {
    Run::new("sh")
        .args(["-c", text])
        .env("gpushim", env!("CARGO_BIN_EXE_gpushim"))
        .env("paced", program("paced"))
        .may_complain()
        .native()
}

fn path(outcome: &Outcome, name: &str) -> PathBuf {
    outcome.folder().join(name)
}

fn report(outcome: &Outcome, name: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpushim"));
    let output = command.arg("report").arg(path(outcome, name)).output();
    let output = output.expect("gpushim report");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_short_run_leaves_one_small_file_in_a_folder_that_was_made() {
    let outcome = script("$gpushim run --quiet -o a/b/run.trace $paced 50 0 end; ls a/b");
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(
        outcome.stdout.ends_with("\nrun.trace\n"),
        "{}",
        outcome.stdout
    );
    let file = File::open(path(&outcome, "a/b/run.trace")).expect("a trace");
    let bytes = file.metadata().expect("its size").len();
    println!("{bytes} bytes");
    assert!(bytes <= 200 << 10, "{bytes}");
    let summary = attached::read(&file, Attached::Summary).expect("read");
    assert!(summary.is_some_and(|text| text.starts_with(b"{")));
    let names = attached::read(&file, Attached::Symbols).expect("read");
    let names = String::from_utf8(names.expect("names")).expect("text");
    assert!(names.contains("main"), "{names}");
    let said = report(&outcome, "a/b/run.trace");
    assert!(
        said.contains(" recorded\n") && !said.contains("damage"),
        "{said}"
    );
}

#[test]
fn without_the_command_folders_are_made_too() {
    let outcome = Run::new(program("paced"))
        .args(["50", "0", "end"])
        .env("GPUSHIM_TRACE", "{}/x/%p/run.trace")
        .shim();
    assert_eq!(outcome.code, 0, "{}", outcome.stdout);
    let pid = outcome.note("pid");
    let trace = Trace::open(&path(&outcome, &format!("x/{pid}/run.trace"))).expect("a trace");
    assert!(trace.readable() >= 100);
}

#[test]
fn a_folder_that_cannot_be_written_to_ends_the_run_before_the_program() {
    let outcome = script("echo > file; $gpushim run -o file/run.trace sh -c 'echo began'");
    assert_eq!(outcome.code, 2, "{}", outcome.stderr);
    assert_eq!(outcome.stdout, "");
    let said = outcome.stderr.trim_end();
    assert!(
        said.starts_with("gpushim: failed to write traces to "),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn copies_of_a_running_process_are_read_and_say_what_they_lack() {
    // Two seconds of 100,000 events each.
    let outcome = script(
        "GPUSHIM_TRACE_SIZE=4M GPUSHIM_TRACE_MODE=full GPUSHIM_SPOOL_FLOOR=0 \
         $gpushim run --quiet --no-pack -o run.trace $paced 150000 100000 end &
         until [ -s run.trace ]; do sleep 0.05; done; sleep 1.5
         for copy in 1 2 3 4; do cp run.trace $copy.trace; sleep 0.2; done
         head -c 300000 run.trace > cut.trace
         head -c $(($(stat -c %s run.trace) - 99)) run.trace > torn.trace
         wait",
    );
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let whole = Trace::open(&path(&outcome, "run.trace")).expect("a trace");
    assert_eq!((whole.problems().len(), whole.lost()), (0, 0));
    let mut last = 0;
    for copy in 1..=4 {
        let name = format!("{copy}.trace");
        let trace = Trace::open(&path(&outcome, &name)).expect("a trace");
        println!(
            "{name}: {} of {} events, {:?}",
            trace.readable(),
            whole.readable(),
            trace.problems()
        );
        assert!(trace.readable() >= last && trace.readable() < whole.readable());
        assert!(trace.spooled() > 0 && trace.readable() > 100_000);
        assert_eq!(trace.events().count() as u64, trace.readable());
        last = trace.readable();
        let said = report(&outcome, &name);
        assert!(said.contains("later events are not in it"), "{said}");
    }
    let cut = report(&outcome, "cut.trace");
    assert!(cut.contains("the file is cut off: 300000 bytes"), "{cut}");
    let torn = Trace::open(&path(&outcome, "torn.trace")).expect("a trace");
    assert!(torn.readable() < whole.readable());
    let files = outcome.files();
    let parts = files.iter().filter(|name| !name.ends_with(".trace"));
    assert_eq!(parts.count(), 0, "{files:?}");
}
