//! Causes of failed requests, each made on purpose: each is named, and the size that is said to fit
//! does fit.

use std::process::Command;

use serde_json::Value;

use crate::support::{Outcome, Run, program};

fn run(what: &str, policy: &str, memory: &str) -> Run {
    Run::new(program("oom"))
        .arg(what)
        .env("GPUSHIM_POLICY", policy)
        .env("STANDIN_MEMORY", memory)
}

/// The only request that ran out of memory, as `gpushim oom` explains it.
fn explained(outcome: &Outcome) -> Value {
    assert_eq!(outcome.stdout, "last: 2\n");
    let files = outcome.files();
    let trace = files.iter().find(|name| name.ends_with(".trace"));
    let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .args(["oom", "--format", "json"])
        .arg(outcome.folder().join(trace.expect("a trace")))
        .output()
        .expect("the command");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let shortages = found["results"][0]["shortages"].as_array().expect("a list");
    assert_eq!(
        (output.status.code(), shortages.len()),
        (Some(1), 1),
        "{found:#}"
    );
    shortages[0].clone()
}

fn cause(one: &Value) -> &str {
    one["causes"][0]["cause"].as_str().expect("a cause")
}

#[test]
fn a_limit_is_the_cause_and_a_higher_one_fits() {
    for policy in ["auto", "blocks", "vmm"] {
        let limited = |limit: &str| {
            run("limit", policy, "1G")
                .env("GPUSHIM_LIMIT", limit)
                .shim()
        };
        let one = explained(&limited("128M"));
        assert_eq!(cause(&one), "our-limit", "{policy}: {one:#}");
        let text = one.to_string();
        assert!(!text.contains("GPUSHIM_POLICY=vmm"), "{policy}: {one:#}");
        let advice = one["advice"][0].as_str().expect("advice");
        let enough = advice.strip_prefix("GPUSHIM_LIMIT=");
        let enough = enough.and_then(|rest| rest.split_whitespace().next());
        let enough = enough.unwrap_or_else(|| panic!("{policy}: {one:#}"));
        assert_eq!(limited(enough).stdout, "last: 0\n", "{policy}: {enough}");
    }
}

#[test]
fn pieces_are_the_cause_and_small_pages_fit() {
    let large = run("pieces", "vmm", "136M").env("GPUSHIM_PAGE", "32M");
    let one = explained(&large.shim());
    assert_eq!(cause(&one), "fragmentation", "{one:#}");
    assert_eq!(one["causes"][0]["of_framework"], false);
    let text = one["advice"].to_string();
    assert!(text.contains("`gpushim fragmentation`"), "{one:#}");
    assert_eq!(run("pieces", "vmm", "136M").shim().stdout, "last: 0\n");
}

#[test]
fn a_request_larger_than_the_device_or_the_limit() {
    for policy in ["auto", "blocks", "vmm", "off"] {
        let one = explained(&run("large", policy, "1G").shim());
        assert_eq!(cause(&one), "too-large", "{policy}: {one:#}");
        assert_eq!(one["causes"][0]["by_limit"], false);
        let limited = run("large", policy, "8G").env("GPUSHIM_LIMIT", "512M");
        let one = explained(&limited.shim());
        assert_eq!(cause(&one), "too-large", "{policy}: {one:#}");
        assert_eq!(one["causes"][0]["by_limit"], true);
    }
}

#[test]
fn a_device_that_the_process_itself_fills() {
    for policy in ["auto", "blocks", "vmm", "off"] {
        let one = explained(&run("full", policy, "128M").shim());
        assert_eq!(cause(&one), "full", "{policy}: {one:#}");
        assert_eq!(one["held_by"].as_array().expect("a list").len(), 1);
    }
}
