//! `GPUSHIM_POLICY=plan:FILE`: a run that repeats what was recorded holds what the plan says; one that does not goes on
//! as under `vmm`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::replay::{open, recorded};
use crate::support::{Outcome, Run, program};

/// The requests of a training, so many rounds, recorded under `vmm`.
fn record(arguments: &[&str]) -> Outcome {
    let outcome = Run::new(program("requests"))
        .args(arguments)
        .env("GPUSHIM_POLICY", "vmm")
        .shim();
    assert_eq!(outcome.stdout, "done\n");
    outcome
}

/// What `gpushim plan` makes of it, in a folder of its own.
fn plan(of: &Outcome) -> (tempfile::TempDir, PathBuf, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.plan");
    let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .arg("plan")
        .arg(open(of).path())
        .args(["--format", "json", "-o"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    (folder, file, said["results"][0].clone())
}

fn follow(file: &Path, arguments: &[&str]) -> Outcome {
    Run::new(program("requests"))
        .args(arguments)
        .env("GPUSHIM_POLICY", format!("plan:{}", file.display()))
        .shim()
}

/// What became of the plan, by the trace.
fn fact(of: &Outcome, family: &str) -> String {
    let trace = open(of);
    let key = format!("plan.0.{family}");
    let mut facts = trace.facts().into_iter();
    facts
        .find(|(name, _)| *name == key)
        .unwrap_or_else(|| panic!("no {key}: {:?}", trace.facts()))
        .1
}

fn highest(of: &Outcome) -> u64 {
    recorded(of).into_iter().max().unwrap()
}

const PAGE: u64 = 2 << 20;

fn repeated(family: &str) {
    let first = record(&[family, "20"]);
    let (_folder, file, said) = plan(&first);
    let pools = said["pools"].as_array().unwrap();
    assert_eq!(pools.len(), 1);
    assert_eq!(
        (pools[0]["covered"].as_u64(), pools[0]["period"].as_u64()),
        (Some(20 * 48), Some(0))
    );
    let bytes = pools[0]["bytes"].as_u64().unwrap();
    let requested = pools[0]["peak_requested"].as_u64().unwrap();
    assert!(requested as f64 > 0.98 * bytes as f64, "{pools:?}");
    // The same once more: as it was to be.
    let second = follow(&file, &[family, "20"]);
    assert_eq!(second.stdout, "done\n");
    assert_eq!(fact(&second, family), "followed for 960 allocations");
    assert!(
        highest(&second) <= bytes.next_multiple_of(PAGE),
        "{} of {bytes}",
        highest(&second)
    );
    assert!(highest(&second) <= highest(&first));
    // A longer run leaves it at its end, and goes on.
    let longer = follow(&file, &[family, "30"]);
    assert_eq!(longer.stdout, "done\n");
    assert_eq!(
        fact(&longer, family),
        "followed for 960 allocations, to its end"
    );
    assert!(recorded(&longer).len() == 30 * 48);
}

#[test]
fn a_run_that_repeats_itself_holds_what_was_planned() {
    repeated("plain");
}

#[test]
fn so_it_does_across_streams() {
    repeated("streams");
}

#[test]
fn a_period_is_followed_for_as_long_as_it_repeats() {
    let first = record(&["streams", "10", "same"]);
    let (_folder, file, said) = plan(&first);
    assert_eq!(said["pools"][0]["period"].as_u64(), Some(48), "{said}");
    let bytes = said["pools"][0]["bytes"].as_u64().unwrap();
    let long = follow(&file, &["streams", "200", "same"]);
    assert_eq!(long.stdout, "done\n");
    assert_eq!(fact(&long, "streams"), "followed for 9600 allocations");
    assert!(highest(&long) <= bytes.next_multiple_of(PAGE));
}

#[test]
fn each_rank_has_a_plan_of_its_own() {
    let (folder, file, _) = plan(&record(&["streams", "10", "same"]));
    std::fs::rename(&file, folder.path().join("rank-3.plan")).unwrap();
    let pattern = folder.path().join("rank-%r.plan");
    let run = Run::new(program("requests"))
        .args(["streams", "10", "same"])
        .env("RANK", "3")
        .env("GPUSHIM_POLICY", format!("plan:{}", pattern.display()))
        .shim();
    assert_eq!(fact(&run, "streams"), "followed for 480 allocations");
}

#[test]
fn another_run_leaves_it_at_the_first_request_that_differs() {
    let (_folder, file, _) = plan(&record(&["streams", "10", "same"]));
    let other = follow(&file, &["streams", "10"]);
    assert_eq!(other.stdout, "done\n");
    let said = fact(&other, "streams");
    assert!(
        said.starts_with("followed for ") && said.contains(" bytes were requested instead of "),
        "{said}"
    );
    // Within what vmm alone would hold, and a little: the plan's pages are not lost.
    let alone = highest(&record(&["streams", "10"]));
    assert!(
        highest(&other) as f64 <= 1.1 * alone as f64,
        "{} and {alone}",
        highest(&other)
    );
    // The other family has no plan: it is vmm from the beginning.
    let plain = follow(&file, &["plain", "10"]);
    assert_eq!(recorded(&plain), recorded(&record(&["plain", "10"])));
}

#[test]
fn a_file_that_is_no_plan_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("no.plan");
    for (content, why) in [
        (None, "No such file or directory (os error 2)"),
        (
            Some("gpushim-plan 1\npool 0 plain steps 1 again -\n"),
            "it ends before its last step",
        ),
    ] {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let run = Run::new(program("requests"))
            .args(["plain", "5"])
            .env("GPUSHIM_POLICY", format!("plan:{}", file.display()))
            .may_complain()
            .shim();
        assert_eq!(run.stdout, "done\n");
        assert_eq!(
            run.stderr,
            format!(
                "gpushim: GPUSHIM_POLICY: failed to read the plan {}: {why}; using vmm\n",
                file.display()
            )
        );
    }
}

#[test]
fn a_pipe_in_place_of_a_plan_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("run.plan");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()));
    let outcome = Run::new(program("requests"))
        .args(["plain", "1"])
        .env("GPUSHIM_POLICY", format!("plan:{}", pipe.display()))
        .limit(std::time::Duration::from_secs(20))
        .may_complain()
        .shim();
    assert_eq!((&outcome.told()[..], outcome.code), ("done\n", 0));
    let lines = outcome.complaints();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("not a regular file") && lines[0].contains("using vmm"),
        "{lines:?}"
    );
}
