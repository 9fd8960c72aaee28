//! Purpose of the memory of a run: savings, drops, and the contents of the peak.

use super::*;

/// Differences between two runs, with the exit code.
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
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    (found["results"][0].clone(), output.status.code())
}

#[test]
fn what_half_the_precision_and_quarter_batches_save() {
    let plain = run("clean", 20).shim();
    for (case, saved) in [("half", 2.0 / 4.0), ("quarters", 3.0 / 4.0)] {
        let less = run(case, 20).shim();
        let (found, code) = diff(&plain, &less);
        assert_eq!(code, Some(0), "less is no regression, {case}: {found:#}");
        assert_eq!(diff(&less, &plain).1, Some(1), "{case}");
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

/// Figures of the phase of this name.
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
    let is_teacher = |holder: &&Value| named(&function(holder), "load_teacher");
    let held: u64 = holders
        .iter()
        .filter(is_teacher)
        .filter_map(|holder| holder["bytes"].as_u64())
        .sum();
    if crate::python::python().is_some() {
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
    let other = |holder: &&Value| !named(&function(holder), "load_features  situations.py");
    assert_eq!(holders.iter().find(other), None, "{peak:#}");
}

/// The sizes of the article: 4,608 bytes of inputs, 1,457,152 with the model, 1,514,496 after the
/// forward pass.
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
    assert_eq!(diff(&with, &without).1, Some(1));
    let (found, code) = diff(&without, &with);
    assert_eq!(code, Some(0), "less is no regression: {found:#}");
    // Two of the four layers keep no input until the backward pass; the last is needed at the peak
    // anyway.
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

/// Contents of the peak: at the beginning of backward, four layers of 1 MiB beside the input.
#[test]
fn what_the_peak_was_for() {
    const MIB: f64 = (1 << 20) as f64;
    for ranges in ["", "1"] {
        if ranges.is_empty() && crate::python::python().is_none() {
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
        .arg(crate::python::python().unwrap_or_else(|| "python3".into()))
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
    let job = &found["jobs"][0];
    let names: Vec<&Value> = job["ranks"]
        .as_array()
        .expect("ranks")
        .iter()
        .map(|rank| &rank["name"])
        .collect();
    assert_eq!(names, ["0", "1", "2", "3"], "{job:#}");
    assert_eq!(
        (&job["highest"], &job["outliers"][0]["ranks"]),
        (&"2".into(), &serde_json::json!(["2"])),
        "{job:#}"
    );
}
