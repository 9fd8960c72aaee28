//! `gpushim run` on real processes: the library is found, stacks are recorded, and the findings are
//! printed at the end.

use std::os::unix::fs::MetadataExt;

use crate::support::{Outcome, Run, place};

/// A training under `gpushim run`, with these words before the program.
fn under(options: &[&str], case: &str, steps: u32) -> Run {
    Run::new(env!("CARGO_BIN_EXE_gpushim"))
        .arg("run")
        .args(options)
        .arg(super::python::python().unwrap_or_else(|| "python3".into()))
        .arg(place().root.join("tests/programs/situations.py"))
        .args([case, &steps.to_string()])
        .env("GPUSHIM_TRACE", "{}/%p.trace")
        .env("STANDIN_MEMORY", "512M")
        .may_complain()
}

/// Output of `run`, without the program's output to the same stream.
fn said(outcome: &Outcome) -> Vec<&str> {
    let lines = outcome.stderr.lines();
    lines
        .skip_while(|line| !line.starts_with("gpushim: "))
        .collect()
}

#[test]
fn a_leak_is_named_when_the_program_ends() {
    let outcome = under(&[], "leaky-layer", 30).native();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(
        outcome.stdout.contains("# leaves "),
        "the program's own output"
    );
    let lines = said(&outcome);
    assert!((4..=8).contains(&lines.len()), "{lines:#?}");
    assert!(lines[0].contains(" finding"), "{lines:#?}");
    assert!(
        lines[1].starts_with("  1. ") && lines[1].contains("keeps 1.0 MiB in each"),
        "{lines:#?}"
    );
    if super::python::python().is_some() {
        let place = lines.iter().find(|line| line.starts_with("     at "));
        let place = place.unwrap_or_else(|| panic!("no place: {lines:#?}"));
        assert!(place.contains("copy situations.py"), "{lines:#?}");
        assert!(place.contains("Leaky.forward situations.py"), "{lines:#?}");
    }
    let last = lines.last().copied().unwrap_or_default();
    let trace = outcome
        .files()
        .into_iter()
        .find(|name| name.ends_with(".trace"))
        .expect("a trace");
    assert!(
        last.starts_with(&format!("gpushim: wrote {trace} (")),
        "{lines:#?}"
    );
    assert!(
        last.ends_with(&format!(" on disk); next: gpushim report {trace}")),
        "{lines:#?}"
    );
    let taken = outcome
        .folder()
        .join(&trace)
        .metadata()
        .expect("the trace")
        .blocks()
        * 512;
    assert!(taken < 16 << 20, "{taken} bytes on the disk");
}

#[test]
fn a_clean_program_is_left_in_peace() {
    let outcome = under(&["--quiet"], "clean", 30).native();
    assert_eq!(
        (outcome.code, said(&outcome).len()),
        (0, 0),
        "{}",
        outcome.stderr
    );
    let outcome = under(&["--no-stacks"], "clean", 30).native();
    let lines = said(&outcome);
    assert_eq!(outcome.code, 0);
    let faults = ["grows", "Out of memory", "left behind"];
    for fault in faults {
        assert!(!outcome.stderr.contains(fault), "{lines:#?}");
    }
    assert!(
        lines.len() <= 8 && lines[0].contains("; peak "),
        "{lines:#?}"
    );
}

#[test]
fn ranks_write_a_trace_each_and_the_first_speaks() {
    // Rank 0 reports the ranks that it can see. The others have begun before, also on a busy
    // machine.
    let script = "for rank in 2 1; do RANK=$rank \"$@\" & done; sleep 1; RANK=0 \"$@\"; code=$?; wait; exit $code";
    let outcome = Run::new("sh")
        .args(["-c", script, "sh"])
        .arg(env!("CARGO_BIN_EXE_gpushim"))
        .arg("run")
        .arg(super::python::python().unwrap_or_else(|| "python3".into()))
        .arg(place().root.join("tests/programs/situations.py"))
        .args(["leaky-layer", "30"])
        .env("GPUSHIM_TRACE", "{}/%r-%p.trace")
        .env("STANDIN_MEMORY", "512M")
        .may_complain()
        .native();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let files = outcome.files();
    for rank in ["0-", "1-", "2-"] {
        let its = files
            .iter()
            .filter(|name| name.starts_with(rank) && name.ends_with(".trace"));
        assert_eq!(its.count(), 1, "{files:?}");
    }
    let lines = said(&outcome);
    assert!(lines.len() <= 8, "one summary: {lines:#?}");
    assert_eq!(
        outcome.stderr.matches("next: gpushim report").count(),
        1,
        "{lines:#?}"
    );
    assert!(lines[0].contains(" ranks, rank "), "{lines:#?}");
}
