//! `gpushim top` looks at processes that run.

use serde_json::Value;

use crate::support::{Outcome, Run, place};

/// A process that holds 3 MiB, held 7 MiB before, and has this looked at it.
fn looked_at(arguments: &[&str]) -> Outcome {
    Run::new(super::python::python().unwrap_or_else(|| "python3".into()))
        .arg(place().root.join("tests/programs/looked_at.py"))
        .args([env!("CARGO_BIN_EXE_gpushim"), "top"])
        .args(arguments)
        .env("GPUSHIM_STACKS", "all")
        .shim()
}

fn processes(outcome: &Outcome) -> Vec<Value> {
    let text = &outcome.stdout;
    let found: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    found["results"].as_array().expect("processes").clone()
}

#[test]
fn a_process_that_runs() {
    let outcome = looked_at(&["--format", "json", "PID"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
    let found = processes(&outcome);
    let [one] = &found[..] else {
        panic!("{found:#?}")
    };
    assert_eq!(one["runs"], true, "{one:#}");
    assert_eq!(one["allocated"], 3 << 20, "{one:#}");
    assert_eq!(one["peak"], 7 << 20, "{one:#}");
    assert!(one["reserved"].as_u64() >= Some(3 << 20), "{one:#}");
    assert_eq!(one["out_of_memory"], 0, "{one:#}");
    assert!(
        one["program"]
            .as_str()
            .is_some_and(|name| name.contains("looked_at.py")),
        "{one:#}"
    );
    let holder = &one["holders"][0];
    assert_eq!(
        (&holder["bytes"], &holder["blocks"]),
        (&(3 << 20).into(), &3.into())
    );
    if super::python::python().is_some() {
        let function = &holder["function"];
        assert_eq!(function["name"], "hold", "{one:#}");
        let file = function["file"].as_str();
        assert!(
            file.is_some_and(|file| file.ends_with("/looked_at.py")),
            "{one:#}"
        );
    }
}

#[test]
fn all_processes_that_record() {
    let outcome = looked_at(&["--format", "json"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
    // Other tests may run beside this one.
    let folder = outcome.folder().display().to_string();
    let found = processes(&outcome);
    let ours = found.iter().filter(|one| {
        let trace = one["trace"].as_str().unwrap_or_default();
        trace.starts_with(&folder)
    });
    assert_eq!(ours.count(), 1, "{folder}: {found:#?}");
}

#[test]
fn one_table_without_a_terminal() {
    let outcome = looked_at(&["PID"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
    let lines: Vec<_> = outcome.stdout.lines().collect();
    let [heading, line, "", memory, .., held, used] = lines[..] else {
        panic!("{}", outcome.stdout)
    };
    assert!(memory.ends_with("  Memory"), "{memory}");
    assert!(held.ends_with("gpushim: kept for reuse"), "{held}");
    let used: Vec<_> = used.split_whitespace().collect();
    assert_eq!(
        used.join(" "),
        "8.0 MiB used by this process and others, of 8.0 GiB"
    );
    assert!(
        heading.trim_start().starts_with("pid  program"),
        "{heading}"
    );
    assert!(
        line.contains("3.0 MiB") && line.contains("7.0 MiB"),
        "{line}"
    );
}
