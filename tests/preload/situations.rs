//! Situations of users, from the program to the findings of the command.
//!
//! Faults are found with their size and the responsible function. Programs without faults have no
//! findings.

use std::process::Command;

use serde_json::Value;

use crate::support::{Outcome, Run, place};

mod shape;

/// Programs without a fault.
const CLEAN: [&str; 8] = [
    "clean",
    "varying",
    "cache",
    "checkpoint",
    "accumulate",
    "last-output",
    "evaluation",
    "restart",
];

/// A training with this number of steps. Its functions have names if a Python that provides them is
/// installed.
fn run(case: &str, steps: u32) -> Run {
    Run::new(super::python::python().unwrap_or_else(|| "python3".into()))
        .arg(place().root.join("tests/programs/situations.py"))
        .args([case, &steps.to_string()])
        .env("GPUSHIM_STACKS", "all")
        .env("STANDIN_MEMORY", "512M")
}

/// Result of a subcommand for the only trace, with its exit code.
fn ask(outcome: &Outcome, arguments: &[&str]) -> (Value, i32) {
    let files = outcome.files();
    let trace = files.iter().find(|name| name.ends_with(".trace"));
    let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .args(arguments)
        .args(["--format", "json"])
        .arg(outcome.folder().join(trace.expect("a trace")))
        .output()
        .expect("the command");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let found: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (
        found["results"][0].clone(),
        output.status.code().expect("an exit code"),
    )
}

/// The report of the only trace, and its findings of faults: each with its kind and subject.
///
/// Findings of possible savings are left out: the size of a cache is no part of a situation.
fn report(outcome: &Outcome) -> (Value, Vec<(String, String)>) {
    let files = outcome.files();
    let trace = files.iter().find(|name| name.ends_with(".trace"));
    let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .args(["report", "--format", "json"])
        .arg(outcome.folder().join(trace.expect("a trace")))
        .output()
        .expect("the command");
    assert_eq!(output.status.code(), Some(0));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let report = found["results"][0].clone();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let findings = report["findings"].as_array().expect("findings").iter();
    let faults = findings.map(|one| (text(&one["kind"]), text(&one["of"])));
    let saving = ["fragmentation", "unused", "elsewhere"];
    let faults = faults.filter(|(kind, _)| !saving.contains(&kind.as_str()));
    let faults = faults.collect();
    (report, faults)
}

/// Checks that the first finding of `report` is this fault. Its sentence must have these words.
fn says(outcome: &Outcome, fault: (&str, &str), words: &[&str]) {
    let (report, faults) = report(outcome);
    let (kind, of) = fault;
    assert_eq!(faults, [(kind.to_owned(), of.to_owned())], "{report:#}");
    let text = &report["findings"][0]["text"];
    for word in words {
        assert!(named(text, word), "{word}: {text:#}");
    }
    let next = report["findings"][0]["next"].as_str().expect("a command");
    assert!(
        next.starts_with("gpushim ") && next.ends_with(".trace"),
        "{next}"
    );
}

fn near(seen: &Value, planted: f64) -> bool {
    seen.as_f64()
        .is_some_and(|seen| (seen - planted).abs() <= planted * 0.02)
}

/// The function of a call site with its file, as text has it.
fn function(site: &Value) -> Value {
    let function = &site["function"];
    let text = |key: &str| function[key].as_str().unwrap_or_default();
    let file = text("file").rsplit('/').next().unwrap_or_default();
    format!("{}  {file}", text("name")).into()
}

/// The function is named where Python's functions can be.
fn named(text: &Value, function: &str) -> bool {
    super::python::python().is_none() || text.as_str().is_some_and(|text| text.contains(function))
}

#[test]
fn a_layer_that_keeps_its_input() {
    for steps in [12, 60] {
        let outcome = run("leaky-layer", steps).shim();
        let planted = outcome.note("leaves") as f64;
        let (growth, code) = ask(&outcome, &["growth"]);
        assert_eq!(code, 1, "{growth:#}");
        assert!(
            near(&growth["growth"]["per_iteration"], planted),
            "{growth:#}"
        );
        assert!(
            growth["keepers"][0]["share"].as_f64() > Some(0.98),
            "{growth:#}"
        );
        assert!(
            named(&function(&growth["keepers"][0]), "copy  situations.py"),
            "{growth:#}"
        );
        assert!(
            named(&growth["verdict"], "copy situations.py"),
            "{growth:#}"
        );
        let caller = &growth["keepers"][0]["called_by"]["name"];
        assert!(named(caller, "Leaky.forward"), "{growth:#}");
        says(
            &outcome,
            ("growth", "device memory"),
            &["keeps 1.0 MiB in each", "copy situations.py"],
        );
    }
}

#[test]
fn a_list_of_losses_that_keeps_its_graphs() {
    let outcome = run("losses", 40).shim();
    let (growth, code) = ask(&outcome, &["growth"]);
    assert_eq!(code, 1, "{growth:#}");
    // Of each step the output of the last layer, the loss, and the extra term.
    let planted = f64::from(512 * 512 * 4 + 512 + 512);
    assert!(
        near(&growth["growth"]["per_iteration"], planted),
        "{growth:#}"
    );
    assert!(
        named(&growth["verdict"], "forward situations.py"),
        "{growth:#}"
    );
    says(
        &outcome,
        ("growth", "device memory"),
        &[" in each ", "forward situations.py"],
    );
}

#[test]
fn a_leak_under_varying_lengths() {
    let outcome = run("varying-leak", 97).shim();
    let (growth, code) = ask(&outcome, &["growth"]);
    assert_eq!(code, 1, "{growth:#}");
    // Lengths go through 16 to 112 evenly: 64 rows in the mean.
    assert!(
        near(&growth["growth"]["per_iteration"], f64::from(64 * 512 * 4)),
        "{growth:#}"
    );
    says(
        &outcome,
        ("growth", "device memory"),
        &["KiB in each", "copy situations.py"],
    );
}

#[test]
fn pinned_memory_that_grows() {
    let outcome = run("pinned", 30).shim();
    let (growth, code) = ask(&outcome, &["growth", "--of", "host"]);
    assert_eq!(code, 1, "{growth:#}");
    assert!(
        near(
            &growth["growth"]["per_iteration"],
            outcome.note("leaves") as f64
        ),
        "{growth:#}"
    );
    assert!(
        named(&growth["verdict"], "train situations.py"),
        "{growth:#}"
    );
    let (growth, code) = ask(&outcome, &["growth"]);
    assert_eq!(code, 0, "the device's memory does not grow: {growth:#}");
    says(
        &outcome,
        ("growth", "pinned host memory"),
        &[
            "Pinned host memory: ",
            "keeps 3.0 MiB in each",
            "train situations.py",
        ],
    );
}

#[test]
fn memory_that_runs_out() {
    let outcome = run("leaky-layer", 100_000)
        .env("STANDIN_MEMORY", "96M")
        .shim();
    assert!(
        outcome.stdout.contains("out of memory"),
        "{}",
        outcome.stdout
    );
    let (oom, code) = ask(&outcome, &["oom"]);
    assert_eq!(code, 1, "{oom:#}");
    let one = &oom["shortages"][0];
    assert!(
        named(&function(&one["held_by"][0]), "copy  situations.py"),
        "{oom:#}"
    );
    assert!(one["held_by"][0]["share"].as_f64() > Some(0.5), "{oom:#}");
    let advice = one["advice"].to_string();
    assert!(
        advice.contains("Free in each iteration the 1.0 MiB of `copy situations.py"),
        "{oom:#}"
    );
    let (report, faults) = report(&outcome);
    let kinds: Vec<&str> = faults.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["out-of-memory", "growth"], "{report:#}");
    assert!(
        named(
            &report["findings"][0]["text"],
            "held by `copy situations.py"
        ),
        "{report:#}"
    );
}

/// Small tensors stay between large ones that go: free pages move to where they are needed.
#[test]
fn memory_in_pieces_is_used_again() {
    for policy in ["vmm", "blocks"] {
        let outcome = run("scattered", 12).env("GPUSHIM_POLICY", policy).shim();
        let (found, code) = ask(&outcome, &["fragmentation"]);
        assert_eq!(code, 0, "{policy}: {found:#}");
    }
}

#[test]
fn memory_that_falls_and_does_not_come_back() {
    for (case, function, policy) in [
        ("bank", "sample situations.py", "auto"),
        ("reset", "situations.py", "auto"),
        ("reset", "situations.py", "off"),
    ] {
        let outcome = run(case, 30).env("GPUSHIM_POLICY", policy).shim();
        let (report, faults) = report(&outcome);
        let kinds = Vec::from_iter(faults.iter().map(|(kind, _)| kind.as_str()));
        assert_eq!(kinds, ["drops"], "{case}: {report:#}");
        let planted = outcome.note("loses") as f64;
        let found = &report["findings"][0];
        let text = &found["text"];
        assert!(named(text, function), "{case}: {text}");
        assert_eq!(
            named(text, "a context was reset"),
            case == "reset",
            "{case}: {text}"
        );
        // The loaded memory is freed together with a step's activations.
        match case {
            "reset" => assert!(near(&found["bytes"], planted), "{case}: {found:#}"),
            _ => assert!(
                found["bytes"].as_f64() >= Some(planted),
                "{case}: {found:#}"
            ),
        }
        // Most was live at the moment to look at.
        let next = found["next"].as_str().expect("a command");
        let mut words = next.split(' ').skip_while(|word| *word != "--at");
        let moment = words.nth(1).expect("a moment");
        let (peak, _) = ask(&outcome, &["peak", "--at", moment]);
        assert!(
            peak["bytes"].as_f64() >= found["bytes"].as_f64(),
            "{case}: {peak:#}"
        );
    }
}

#[test]
fn clean_programs_are_left_in_peace() {
    for (number, case) in CLEAN.into_iter().enumerate() {
        for steps in [20, 41, 73] {
            let outcome = run(case, steps + number as u32).shim();
            let (growth, code) = ask(&outcome, &["growth"]);
            assert_eq!(code, 0, "{case} {steps}: {growth:#}");
            assert!(
                growth["growth"]["iterations"].as_u64() > Some(3),
                "{case} {steps}: {growth:#}"
            );
            for question in ["oom", "fragmentation"] {
                let (found, code) = ask(&outcome, &[question]);
                assert_eq!(code, 0, "{case} {steps}: {found:#}");
            }
            let (report, faults) = report(&outcome);
            assert_eq!(faults, [], "{case} {steps}: {report:#}");
            // Ten of 22 steps fill the cache: those after it are too few to deny growth.
            let is_filling = case == "cache" && steps == 20;
            let steady = report["steady"].as_str();
            assert!(
                steady.is_some_and(|text| text.starts_with("Memory does not grow: "))
                    || is_filling && steady.is_none(),
                "{case} {steps}: {report:#}"
            );
        }
    }
}

#[test]
fn clean_programs_do_not_fragment_large_pages() {
    for case in CLEAN {
        let outcome = run(case, 41).env("GPUSHIM_PAGE", "32M").shim();
        let (found, code) = ask(&outcome, &["fragmentation"]);
        assert_eq!(code, 0, "{case}: {found:#}");
    }
}
