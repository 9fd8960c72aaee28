//! What users live through, from the program to the verdict of the command: faults are found with their size and the
//! function responsible, and clean programs are left in peace.

use std::process::Command;

use serde_json::Value;

use crate::support::{Outcome, Run, place};

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

/// A training of so many steps; its functions have names where there is a Python that gives them.
fn run(case: &str, steps: u32) -> Run {
    Run::new(super::stacks::python().unwrap_or_else(|| "python3".into()))
        .arg(place().root.join("tests/programs/situations.py"))
        .args([case, &steps.to_string()])
        .env("GPUSHIM_STACKS", "all")
        .env("GPUSHIM_PYTHON", "on")
        .env("STANDIN_MEMORY", "512M")
}

/// What a subcommand finds in the only trace, with its exit code.
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
        found["findings"][0].clone(),
        output.status.code().expect("an exit code"),
    )
}

/// The report of the only trace, and its verdicts: what stands out, and of what.
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
    let report = found["reports"][0].clone();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let verdicts = report["verdicts"].as_array().expect("verdicts").iter();
    let verdicts = verdicts.map(|one| (text(&one["kind"]), text(&one["of"])));
    let verdicts = verdicts.collect();
    (report, verdicts)
}

/// What `report` says first is this, and its sentence has these words.
fn says(outcome: &Outcome, verdict: (&str, &str), words: &[&str]) {
    let (report, verdicts) = report(outcome);
    let (kind, of) = verdict;
    assert_eq!(verdicts, [(kind.to_owned(), of.to_owned())], "{report:#}");
    let text = &report["verdicts"][0]["text"];
    for word in words {
        assert!(named(text, word), "{word}: {text:#}");
    }
    let next = report["verdicts"][0]["next"].as_str().expect("a command");
    assert!(
        next.starts_with("gpushim ") && next.ends_with(".trace"),
        "{next}"
    );
}

fn near(seen: &Value, planted: f64) -> bool {
    seen.as_f64()
        .is_some_and(|seen| (seen - planted).abs() <= planted * 0.02)
}

/// The function is named where Python's functions can be.
fn named(text: &Value, function: &str) -> bool {
    super::stacks::python().is_none() || text.as_str().is_some_and(|text| text.contains(function))
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
            named(&growth["keepers"][0]["function"], "copy  situations.py"),
            "{growth:#}"
        );
        assert!(
            named(&growth["verdict"], "copy situations.py"),
            "{growth:#}"
        );
        let frames = growth["keepers"][0]["frames"].to_string();
        assert!(
            named(&frames.into(), "Leaky.forward  situations.py"),
            "{growth:#}"
        );
        says(
            &outcome,
            ("growth", "device memory"),
            &["grows by 1.0 MiB per iteration", "copy situations.py"],
        );
        let (leaks, code) = ask(&outcome, &["leaks"]);
        assert_eq!(code, 1, "{leaks:#}");
        assert!(
            leaks["left"][0]["leaks"] == true && leaks["left"][1]["leaks"] == false,
            "{leaks:#}"
        );
        assert!(
            named(&leaks["left"][0]["function"], "copy  situations.py"),
            "{leaks:#}"
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
        &["per iteration", "forward situations.py"],
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
        &["KiB per iteration", "copy situations.py"],
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
            "Pinned host memory grows by 3.0 MiB per iteration",
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
        named(&one["held_by"][0]["function"], "copy  situations.py"),
        "{oom:#}"
    );
    assert!(one["held_by"][0]["share"].as_f64() > Some(0.5), "{oom:#}");
    let advice = one["advice"].to_string();
    assert!(advice.contains("gpushim growth"), "{oom:#}");
    let (report, verdicts) = report(&outcome);
    let kinds: Vec<&str> = verdicts.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["out-of-memory", "growth"], "{report:#}");
    assert!(
        named(
            &report["verdicts"][0]["text"],
            "held by `copy situations.py"
        ),
        "{report:#}"
    );
}

#[test]
fn memory_in_pieces() {
    let outcome = run("scattered", 12)
        .env("GPUSHIM_POLICY", "segments")
        .shim();
    let (found, code) = ask(&outcome, &["fragmentation"]);
    assert_eq!(code, 1, "{found:#}");
    let planted = outcome.note("scatters") as f64;
    assert!(near(&found["devices"][0]["pinned"], planted), "{found:#}");
    assert!(near(&found["keepers"][0]["free"], planted), "{found:#}");
    assert!(
        named(&found["verdict"], "sample situations.py"),
        "{found:#}"
    );
    // Pages are mapped where they are needed.
    let outcome = run("scattered", 12).env("GPUSHIM_POLICY", "vmm").shim();
    let (found, code) = ask(&outcome, &["fragmentation"]);
    assert_eq!(code, 0, "{found:#}");
}

#[test]
fn memory_that_falls_and_does_not_come_back() {
    for (case, function) in [("bank", "sample situations.py"), ("reset", "situations.py")] {
        let outcome = run(case, 30).shim();
        let (found, code) = ask(&outcome, &["drops"]);
        assert_eq!(code, 1, "{case}: {found:#}");
        let planted = outcome.note("loses") as f64;
        let drop = &found["drops"][0];
        let size = if case == "reset" { "bytes" } else { "lasting" };
        assert!(near(&drop[size], planted), "{case}: {found:#}");
        let cause = drop["cause"] == "context-reset";
        assert_eq!(cause, case == "reset", "{case}: {found:#}");
        assert!(named(&found["verdict"], function), "{case}: {found:#}");
        // What each iteration frees is no more than a line.
        let each = found["drops"].as_array().expect("a list").iter();
        let each = each.filter(|drop| drop["each_iteration"] == true);
        assert_eq!(each.count(), 1, "{case}: {found:#}");
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
            let (leaks, code) = ask(&outcome, &["leaks"]);
            assert_eq!(code, 0, "{case} {steps}: {leaks:#}");
            for question in ["oom", "drops", "fragmentation"] {
                let (found, code) = ask(&outcome, &[question]);
                assert_eq!(code, 0, "{case} {steps}: {found:#}");
            }
            let (report, verdicts) = report(&outcome);
            assert_eq!(verdicts, [], "{case} {steps}: {report:#}");
            let steady = report["steady"].as_str();
            assert!(
                steady.is_some_and(|text| text.starts_with("Memory does not grow: ")),
                "{case} {steps}: {report:#}"
            );
        }
    }
}

#[test]
fn clean_programs_do_not_fragment_segments() {
    for case in CLEAN {
        let outcome = run(case, 41).env("GPUSHIM_POLICY", "segments").shim();
        let (found, code) = ask(&outcome, &["fragmentation"]);
        assert_eq!(code, 0, "{case}: {found:#}");
    }
}

/// What changed between two runs, with the exit code.
fn diff(a: &Outcome, b: &Outcome) -> (Value, Option<i32>) {
    let trace = |outcome: &Outcome| {
        let files = outcome.files();
        let trace = files.iter().find(|name| name.ends_with(".trace"));
        outcome.folder().join(trace.expect("a trace"))
    };
    let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .args(["diff", "--format", "json"])
        .args([trace(a), trace(b)])
        .output()
        .expect("the command");
    let found = serde_json::from_slice(&output.stdout).expect("JSON");
    (found, output.status.code())
}

#[test]
fn what_half_the_precision_and_quarter_batches_save() {
    let plain = run("clean", 20).shim();
    for (case, saved) in [("half", 2.0 / 4.0), ("quarters", 3.0 / 4.0)] {
        let (found, code) = diff(&plain, &run(case, 20).shim());
        assert_eq!(code, Some(1), "{case}: {found:#}");
        // The outputs of layers are the framework's allocations, on behalf of this function.
        let top = &found["holders"][0];
        assert!(
            named(&top["name"], "forward  situations.py"),
            "{case}: {found:#}"
        );
        let [before, after] = [0, 1].map(|side| top["values"][side].as_f64().unwrap_or(0.0));
        assert!(
            (before - after) / before > saved * 0.98,
            "{case}: {found:#}"
        );
    }
}

#[test]
fn what_was_added_since_a_baseline() {
    let [before, after] = ["clean", "average"].map(|case| run(case, 20).shim());
    let (found, code) = diff(&before, &after);
    assert_eq!(code, Some(1), "{found:#}");
    let weights = f64::from(4 * 512 * 512 * 4);
    let [a, b] = [0, 1].map(|run| found["peak"][run].as_f64().unwrap_or(0.0));
    assert!(near(&(b - a).into(), weights), "{found:#}");
    let top = &found["holders"][0];
    assert!(named(&top["name"], "Average.__init__"), "{found:#}");
    assert!(near(&top["values"][1], weights), "{found:#}");
}

/// What a phase says of itself.
fn phase(outcome: &Outcome, name: &str) -> Value {
    let (found, code) = ask(outcome, &["phases"]);
    assert_eq!(code, 0, "{found:#}");
    let phases = found["phases"].as_array().expect("phases");
    let phase = phases.iter().find(|phase| phase["name"] == name);
    phase
        .unwrap_or_else(|| panic!("no {name}: {found:#}"))
        .clone()
}

#[test]
fn memory_that_suddenly_drops() {
    let outcome = run("drop", 40).shim();
    let teacher = f64::from(4 * 1024 * 1024 * 4);
    let fell = phase(&outcome, "end of distillation");
    assert!(near(&fell["freed"], teacher), "{fell:#}");
    let (peak, _) = ask(&outcome, &["peak"]);
    let holders = peak["holders"].as_array().expect("holders");
    // The interpreter may come to the same function by several ways.
    let is_teacher = |holder: &&Value| named(&holder["function"], "load_teacher");
    let held: u64 = holders
        .iter()
        .filter(is_teacher)
        .filter_map(|holder| holder["bytes"].as_u64())
        .sum();
    if super::stacks::python().is_some() {
        assert!(near(&held.into(), teacher), "{peak:#}");
    }
}

#[test]
fn a_reference_that_keeps_memory() {
    let outcome = run("references", 1).shim();
    assert_eq!(phase(&outcome, "del")["freed"], 0);
    assert_eq!(phase(&outcome, "clear")["freed"], 20 << 20);
    let (peak, _) = ask(&outcome, &["peak"]);
    assert_eq!(peak["bytes"], 20 << 20);
    let holders = peak["holders"].as_array().expect("holders");
    let other = |holder: &&Value| !named(&holder["function"], "load_features  situations.py");
    assert_eq!(holders.iter().find(other), None, "{peak:#}");
}

/// The sizes of the article: 4,608 bytes of inputs, 1,457,152 with the model, 1,514,496 after the forward pass.
#[test]
fn activations_apart_from_parameters() {
    let outcome = run("activations", 1).shim();
    assert_eq!(phase(&outcome, "inputs")["kept"], 4608);
    assert_eq!(phase(&outcome, "model")["kept"], 1_457_152 - 4608);
    assert_eq!(phase(&outcome, "forward")["kept"], 1_514_496 - 1_457_152);
}

#[test]
fn what_checkpointing_saves() {
    let [without, with] = ["clean", "checkpoint"].map(|case| run(case, 20).shim());
    let (found, code) = diff(&without, &with);
    assert_eq!(code, Some(1), "{found:#}");
    // Two of the four layers keep no input until the backward pass; the last is needed at the peak anyway.
    let saved = found["peak"][0]
        .as_u64()
        .zip(found["peak"][1].as_u64())
        .map(|(a, b)| a - b);
    assert!(
        saved.is_some_and(|saved| (1..=2).contains(&(saved / (512 * 512 * 4)))),
        "{found:#}"
    );
    assert!(
        named(&found["holders"][0]["name"], "forward  situations.py"),
        "{found:#}"
    );
    let (found, code) = diff(&without, &without);
    assert_eq!(code, Some(0), "{found:#}");
}

/// What the peak was for: when backward begins, of four layers of 1 MiB, beside the input.
#[test]
fn what_the_peak_was_for() {
    const MIB: f64 = (1 << 20) as f64;
    for ranges in ["", "1"] {
        if ranges.is_empty() && super::stacks::python().is_none() {
            continue;
        }
        let outcome = run("clean", 20).env("RANGES", ranges).shim();
        let (report, _) = report(&outcome);
        let of_report = &report["peaks"][0]["composition"];
        let (peak, _) = ask(&outcome, &["peak"]);
        for parts in [of_report, &peak["composition"]] {
            let parts = parts.as_array().expect("what it was for");
            for (category, mib) in [
                ("parameters", 4.0),
                ("gradients", 1.0),
                ("optimizer-state", 8.0),
                ("activations", 5.0),
                ("temporary", 1.0),
            ] {
                let part = parts.iter().find(|part| part["category"] == category);
                assert!(
                    part.is_some_and(|part| near(&part["bytes"], mib * MIB)),
                    "{category}, ranges {ranges:?}: {report:#}"
                );
            }
            assert_eq!(parts.len(), 5, "ranges {ranges:?}: {report:#}");
        }
    }
}

/// Several processes at once, one of them with batches of twice the length: the job says which.
#[test]
fn a_rank_that_is_unlike_the_others() {
    let program = place().root.join("tests/programs/ranks.sh");
    let outcome = Run::new("sh")
        .arg(program)
        .arg(super::stacks::python().unwrap_or_else(|| "python3".into()))
        .arg(place().root.join("tests/programs/situations.py"))
        .env("STANDIN_MEMORY", "512M")
        .shim();
    let traces: Vec<_> = outcome
        .files()
        .into_iter()
        .filter(|name| name.ends_with(".trace"))
        .map(|name| outcome.folder().join(name))
        .collect();
    assert_eq!(traces.len(), 4, "{traces:?}");
    let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .args(["report", "--format", "json"])
        .args(&traces)
        .output()
        .expect("the command");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let job = &found["job"];
    let names: Vec<&Value> = job["ranks"]
        .as_array()
        .expect("ranks")
        .iter()
        .map(|rank| &rank["name"])
        .collect();
    assert_eq!(names, ["0", "1", "2", "3"], "{job:#}");
    assert_eq!(
        (&job["highest"], &job["outliers"]),
        (&2.into(), &serde_json::json!([2])),
        "{job:#}"
    );
}
