//! Traces that lose bytes while the command reads them: an error that names the place, never a
//! signal.

use std::fs::OpenOptions;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gpushim_trace::Writer;

use crate::stacks::{allocated, options};

/// Blocks of the trace. Their printed list is far more than a pipe holds.
const BLOCKS: u64 = 60_000;

fn trace(path: &Path) -> u64 {
    let writer = Writer::create(path, &options(8 << 20)).expect("a trace");
    (1..=BLOCKS).for_each(|number| allocated(&writer, number, 0));
    drop(writer);
    path.metadata().expect("there").len()
}

fn start(folder: &Path, args: &[&str], stdout: Stdio) -> Child {
    Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts")
}

fn set_length(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("there");
    file.set_len(bytes).expect("another length");
}

/// Result of a command that reads the trace while the file is damaged.
fn while_reading(damage: impl Fn(&Path, u64)) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.trace");
    let bytes = trace(&path);
    let mut child = start(folder.path(), &["events", "a.trace"], Stdio::piped());
    // When the first line is there the command is at the events, and soon waits for room in the
    // pipe.
    let mut first = [0; 1];
    let stdout = child.stdout.as_mut().expect("piped");
    stdout.read_exact(&mut first).expect("a first line");
    damage(&path, bytes);
    child.wait_with_output().expect("it is ours")
}

fn failed_with(output: &Output, sentence: &str) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{}: {told}", output.status);
    assert!(told.contains(sentence), "{told}");
}

#[test]
fn a_trace_that_is_truncated() {
    let output = while_reading(|path, _| set_length(path, 5000));
    failed_with(
        &output,
        "failed to read a.trace: it was truncated to 5000 bytes while it was read",
    );
    let output = while_reading(|path, _| set_length(path, 0));
    failed_with(&output, "it was truncated to 0 bytes while it was read");
}

#[test]
fn a_trace_that_is_emptied_and_as_long_as_before() {
    // Pages that are cut off and added again contain zeros. No error shows this: the contents only
    // make no sense.
    let output = while_reading(|path, bytes| {
        set_length(path, 0);
        // The command goes on reading meanwhile, if only as far as the pipe has room.
        thread::sleep(Duration::from_millis(200));
        set_length(path, bytes);
    });
    assert!(output.status.code().is_some(), "{}", output.status);
}

/// Output from a trace gets its name only if the trace stayed complete.
#[test]
fn what_is_made_of_a_truncated_trace_is_not_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.trace");
    // Should the command be done before it is stopped, it is tried again.
    for _ in 0..20 {
        trace(&path);
        let args = ["export", "--to", "json", "-o", "out.json", "a.trace"];
        let child = start(folder.path(), &args, Stdio::null());
        let signal = |number| {
            // SAFETY: the child is ours and not yet waited for.
            let sent = unsafe { libc::kill(child.id() as libc::pid_t, number) };
            assert_eq!(sent, 0);
        };
        // The unfinished file has no name, or a random one: it is found among the descriptors of
        // the child.
        let is_half = || {
            let descriptors = format!("/proc/{}/fd", child.id());
            let descriptors = std::fs::read_dir(descriptors)
                .into_iter()
                .flatten()
                .flatten();
            let mut files = descriptors.filter_map(|entry| {
                let target = std::fs::read_link(entry.path()).ok()?;
                let is_new = target.starts_with(folder.path()) && !target.ends_with("a.trace");
                is_new.then(|| std::fs::metadata(entry.path()).ok())?
            });
            files.any(|meta| meta.len() > 0)
        };
        let begin = Instant::now();
        while !is_half() && begin.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_micros(200));
        }
        signal(libc::SIGSTOP);
        let stopped_in_time = is_half();
        set_length(&path, 4096);
        signal(libc::SIGCONT);
        let output = child.wait_with_output().expect("it is ours");
        if stopped_in_time {
            failed_with(&output, "it was truncated to 4096 bytes while it was read");
            assert!(!folder.path().join("out.json").exists());
            return;
        }
        std::fs::remove_file(&path).expect("there");
        let _ = std::fs::remove_file(folder.path().join("out.json"));
    }
    panic!("the command was always done before it was stopped");
}
