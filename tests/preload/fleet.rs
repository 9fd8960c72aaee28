//! `gpushim run` and `gpushim report` on the processes of a job, as launchers start them.

use serde_json::Value;

use crate::support::{Outcome, Run, place};

/// A shell script with the command as `$gpushim` and a training as `$train CASE STEPS`.
///
/// Traces are `RANK.trace`.
fn script(text: &str) -> Outcome {
    let python = super::python::python().unwrap_or_else(|| "python3".into());
    let program = place().root.join("tests/programs/situations.py");
    let train = format!("{} {}", python.display(), program.display());
    Run::new("sh")
        .args(["-c", text])
        .env("gpushim", env!("CARGO_BIN_EXE_gpushim"))
        .env("train", train)
        .env("GPUSHIM_TRACE", "{}/%r.trace")
        .env("STANDIN_MEMORY", "512M")
        .may_complain()
        .native()
}

fn job(outcome: &Outcome) -> Value {
    let answer: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", outcome.stdout, outcome.stderr));
    answer["jobs"][0].clone()
}

/// The kinds of outliers that a rank is.
fn kinds(job: &Value, rank: usize) -> Vec<&str> {
    let kinds = job["ranks"][rank]["outlier"].as_array().expect("kinds");
    kinds.iter().filter_map(Value::as_str).collect()
}

#[test]
fn four_processes_of_which_one_leaks() {
    let outcome = script(
        "for rank in 3 2 1 0; do
             case=clean; [ $rank = 2 ] && case=leaky-layer
             RANK=$rank WORLD_SIZE=4 TORCHELASTIC_RUN_ID=night $gpushim run --quiet $train $case 30 >&2 &
         done; wait; $gpushim report --job night --format json",
    );
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    let job = job(&outcome);
    assert_eq!((&job["job"], &job["world"]), (&"night".into(), &4.into()));
    assert_eq!(job["totals"]["ended"], 4, "{job:#}");
    for rank in [0, 1, 3] {
        assert_eq!(kinds(&job, rank), [""; 0], "{job:#}");
    }
    // It was started with other words, too.
    assert_eq!(kinds(&job, 2), ["leak", "other-settings"], "{job:#}");
    if super::python::python().is_some() {
        let site = &job["outliers"][0]["site"];
        let named = site["short"].as_str().unwrap_or_default();
        assert!(named.starts_with("copy situations.py:"), "{job:#}");
    }
    for rank in 0..4 {
        let path = outcome.folder().join(format!("{rank}.trace.summary"));
        let bytes = path.metadata().expect("a summary").len();
        assert!(bytes < 16 << 10, "{bytes} bytes of rank {rank}");
    }
}

#[test]
fn the_summary_of_a_killed_process_is_whole() {
    let outcome = script(
        "export WORLD_SIZE=3
         RANK=0 $gpushim run --quiet $train clean 30 >&2
         RANK=1 $gpushim run --quiet --summary-every 100ms $train clean 1000000 >/dev/null 2>&1 &
         until [ -s 1.trace.summary ]; do sleep 0.1; done; kill -9 $!
         cp 1.trace.summary before; sleep 0.3; $gpushim report --format json .",
    );
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    let before = std::fs::read(outcome.folder().join("before")).expect("a summary");
    let before: Value = serde_json::from_slice(&before).expect("it is whole");
    assert_eq!(before["end"]["state"], "running");
    assert_eq!(before["process"]["rank"], 1);
    let job = job(&outcome);
    assert_eq!(kinds(&job, 0), [""; 0], "{job:#}");
    assert_eq!(kinds(&job, 1).first(), Some(&"died"), "{job:#}");
    assert_eq!(job["missing"], serde_json::json!([2]));
}
