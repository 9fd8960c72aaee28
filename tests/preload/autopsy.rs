//! A request that ran out of memory is explained while its process still runs, and the program
//! notices nothing of it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use gpushim_trace::attached::{self, Attached};

use crate::asked::until;
use crate::support::{Outcome, Run, library, program};

/// Most lines of a text, and most characters of each line but the last.
const LINES: usize = 12;
const LETTERS: usize = 90;

fn run(how: &str) -> Run {
    Run::new(program("autopsy"))
        .arg(how)
        .env("GPUSHIM_AUTOPSY", "1")
        .env("STANDIN_MEMORY", "136M")
        .may_complain()
}

fn trace(outcome: &Outcome) -> PathBuf {
    let mut files = outcome.files().into_iter();
    let trace = files.find(|name| name.ends_with(".trace"));
    outcome.folder().join(trace.expect("a trace"))
}

fn texts(outcome: &Outcome) -> String {
    let mut name = trace(outcome).into_os_string();
    name.push(".autopsy");
    fs::read_to_string(name).unwrap_or_default()
}

/// The lines on stderr once the command has ended. It may outlive the program.
fn said(outcome: &Outcome) -> Vec<String> {
    let read = || fs::read_to_string(outcome.folder().join(".err")).unwrap_or_default();
    until("no last line", || read().contains("  more   "));
    let lines: Vec<String> = read().lines().map(str::to_owned).collect();
    let own = lines
        .into_iter()
        .filter(|line| !line.starts_with("standin: "));
    own.collect()
}

/// Checks that a text is whole, once on stderr, and once in the file beside the trace.
fn is_whole(outcome: &Outcome) -> Vec<String> {
    let lines = said(outcome);
    assert!((7..=LINES).contains(&lines.len()), "{lines:#?}");
    let (last, rest) = lines.split_last().expect("lines");
    assert!(last.starts_with("  more   gpushim oom "), "{lines:#?}");
    assert!(
        rest.iter().all(|line| line.chars().count() <= LETTERS),
        "{lines:#?}"
    );
    assert_eq!(
        rest.iter()
            .filter(|line| line.starts_with("gpushim: "))
            .count(),
        1,
        "{lines:#?}"
    );
    let texts = texts(outcome);
    assert_eq!(texts.matches(&lines.join("\n")).count(), 1, "{texts}");
    assert_eq!(texts.matches("gpushim: ").count(), 1, "{texts}");
    lines
}

/// Fails if anything was said, also after a while.
fn is_silent(outcome: &Outcome) {
    std::thread::sleep(Duration::from_millis(500));
    let err = fs::read_to_string(outcome.folder().join(".err")).unwrap_or_default();
    assert!(!err.contains("gpushim"), "{err}");
    assert_eq!(texts(outcome), "");
}

fn gpushim(words: &[&str], outcome: &Outcome) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .args(words)
        .arg(trace(outcome))
        .output()
        .expect("the command");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_program_ends_as_natively_and_the_text_follows() {
    for how in ["exit", "thread", "abort"] {
        let (_, shim) = run(how).both();
        let lines = is_whole(&shim);
        assert!(
            lines[0].starts_with("gpushim: out of memory: load_batch autopsy.c:"),
            "{lines:#?}"
        );
        assert!(
            lines[0].contains(" asked for 16.0 MiB of gpu 0"),
            "{lines:#?}"
        );
        for label in ["  cause  ", "  held   128.0 MiB ", "  had    ", "  fix    "] {
            assert!(
                lines.iter().any(|line| line.starts_with(label)),
                "{label}: {lines:#?}"
            );
        }
    }
}

#[test]
fn the_same_text_after_a_kill() {
    let (_, shim) = run("kill").env("RANK", "1").both();
    let lines = is_whole(&shim);
    assert!(
        lines[0].starts_with("gpushim: rank 1: out of memory: "),
        "{lines:#?}"
    );
    let later = gpushim(&["oom", "--brief"], &shim);
    let without_path = |line: &&str| !line.starts_with("  more   ");
    let live: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(without_path)
        .collect();
    let later: Vec<&str> = later.lines().filter(without_path).collect();
    assert_eq!(live, later);
    let report = gpushim(&["report"], &shim);
    let end = "\nended      without closing the trace: it was killed, crashed or called _exit\n";
    assert!(report.contains(end), "{report}");
}

#[test]
fn the_program_sees_no_child_and_no_signal() {
    let (_, shim) = run("waits").both();
    assert!(
        shim.stdout.contains("\nwait: -1 1, signals: 0\n"),
        "{}",
        shim.stdout
    );
    is_whole(&shim);
    let (_, shim) = run("forks").both();
    assert!(shim.stdout.contains("\nchild: 5\n"), "{}", shim.stdout);
    is_whole(&shim);
}

/// Nothing is written to a file that got the number of the program's closed stderr.
#[test]
fn a_program_without_stderr_keeps_its_files() {
    let (_, shim) = run("closed").both();
    assert!(shim.stdout.ends_with("written: 0\n"), "{}", shim.stdout);
    // The command may outlive the program.
    until("no autopsy", || {
        texts(&shim).contains("gpushim: out of memory: ")
    });
}

#[test]
fn a_cause_is_explained_once() {
    let (_, shim) = run("twice").both();
    is_whole(&shim);
    std::thread::sleep(Duration::from_millis(1000));
    is_whole(&shim);
}

#[test]
fn a_request_that_is_met_after_all_is_none() {
    let (_, shim) = run("recovered").both();
    is_silent(&shim);
}

#[test]
fn without_the_command_nothing_happens() {
    for command in ["/no/such/gpushim", "./autopsy", "0"] {
        let (_, shim) = run("exit").env("GPUSHIM_AUTOPSY", command).both();
        is_silent(&shim);
    }
}

#[test]
fn a_framework_that_tells_its_program() {
    let c10 = library("lib_c10", &[]);
    let cuda = library("lib_c10_cuda", &[c10.as_os_str()]);
    let torch = Run::new(program("torch")).arg(cuda);
    let (_, shim) = torch.env("GPUSHIM_AUTOPSY", "on").may_complain().both();
    let lines = said(&shim);
    assert!(
        lines[0].starts_with("gpushim: out of memory: "),
        "{lines:#?}"
    );
    assert!(lines[0].ends_with(" TiB of gpu 3"), "{lines:#?}");
}

/// `gpushim run` has it always, lets it speak before its own summary, and says how the program
/// ended.
#[test]
fn under_run_the_text_comes_before_the_summary() {
    let gpushim_run = |how: &str| {
        Run::new(env!("CARGO_BIN_EXE_gpushim"))
            .arg("run")
            .arg(program("autopsy"))
            .arg(how)
            .env("GPUSHIM_TRACE", "{}/%p.trace")
            .env("STANDIN_MEMORY", "136M")
            .may_complain()
            .native()
    };
    let ends = [
        ("exit", 9, "ended with exit code 9", "exit code 9"),
        ("_exit", 4, "ended with exit code 4", "exit code 4"),
        (
            "kill",
            -9,
            "was killed by signal 9 (SIGKILL)",
            "killed by signal 9 (SIGKILL)",
        ),
    ];
    for (how, code, said, reported) in ends {
        let outcome = gpushim_run(how);
        assert_eq!(outcome.code, code, "{}", outcome.stderr);
        let at = |text: &str| outcome.stderr.find(text);
        let (end, more) = (
            at(&format!("gpushim: the program {said}\n")),
            at("  more   "),
        );
        assert!(end.is_some(), "{}", outcome.stderr);
        // Who ends by `_exit` just then may be gone before anything was started.
        assert!(
            more < end && (more.is_some() || how == "_exit"),
            "{}",
            outcome.stderr
        );
        let report = gpushim(&["report"], &outcome);
        assert!(
            report.contains(&format!("\nended      {reported}\n")),
            "{report}"
        );
        let files = outcome.files();
        let trace = files.iter().find(|name| name.ends_with(".trace"));
        let trace = fs::File::open(outcome.folder().join(trace.expect("a trace")));
        let summary = attached::read(&trace.expect("opened"), Attached::Summary);
        let summary = summary.expect("read").expect("a summary");
        let by = reported.trim_start_matches("killed by ");
        assert!(String::from_utf8_lossy(&summary).contains(by), "{by}");
    }
}
