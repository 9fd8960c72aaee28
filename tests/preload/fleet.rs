//! `gpushim run` and `gpushim report` on the processes of a job, as launchers start them.

use std::fs::File;

use gpushim_trace::attached::{self, Attached};
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
        let bytes = summary(&outcome, rank).expect("a summary").len();
        assert!(bytes < 16 << 10, "{bytes} bytes of rank {rank}");
    }
}

/// The summary attached to the trace of a rank.
fn summary(outcome: &Outcome, rank: u32) -> Option<Vec<u8>> {
    let file = File::open(outcome.folder().join(format!("{rank}.trace")));
    attached::read(&file.expect("a trace"), Attached::Summary).expect("read")
}

#[test]
fn the_rank_of_a_killed_process_is_summed_up_from_its_trace() {
    let outcome = script(
        "export WORLD_SIZE=3
         RANK=0 $gpushim run --quiet $train clean 30 >&2
         RANK=1 $gpushim run --quiet $train clean 1000000 >/dev/null 2>&1 &
         until [ -s 1.trace ]; do sleep 0.1; done; sleep 0.5
         $gpushim report --keep --format json . > running; kill -9 $!
         sleep 0.3; $gpushim report --keep --format json .",
    );
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    let running = std::fs::read(outcome.folder().join("running")).expect("a report");
    let running: Value = serde_json::from_slice(&running).expect("it is whole");
    assert_eq!(running["jobs"][0]["totals"]["running"], 1, "{running:#}");
    let kept = summary(&outcome, 1).expect("attached once it had ended");
    let kept: Value = serde_json::from_slice(&kept).expect("it is whole");
    assert_eq!(kept["end"]["state"], "died");
    assert_eq!(kept["process"]["rank"], 1);
    let job = job(&outcome);
    assert_eq!(kinds(&job, 0), [""; 0], "{job:#}");
    assert_eq!(kinds(&job, 1).first(), Some(&"died"), "{job:#}");
    assert_eq!(job["missing"], serde_json::json!([2]));
}
