//! Programs of public reports on memory limits of other libraries: HAMi, HAMi-core, and MPS on
//! Kubernetes. The reports that other files have tests for:
//!
//! - a query without a place for the answer, and threads without a context (HAMi-core 172, 187,
//!   321): `shared_limit::every_query_sees_the_limit`;
//! - host memory by `cuMemCreate` (HAMi-core 187): `failures::failure_09`;
//! - a sum that is wrong or a lock that is held after a kill (HAMi 43, HAMi-core 227, 253):
//!   `shared_limit::a_crowd_that_is_killed_stays_within_the_limit`, and the tests of the ledger;
//! - a library that was not loaded (HAMi 777, 1346):
//!   `shared_limit::run_refuses_what_would_have_no_limit`.

use std::ffi::OsStr;
use std::path::Path;

use gpushim_trace::{Class, Kind};

use crate::shared_limit::{self, together, with_nvml};
use crate::support::{Outcome, Run, library, program};

fn run(what: &str) -> Run {
    Run::new(program("limit_reports")).arg(what)
}

/// A run of one of two processes that take turns and share a ledger.
fn in_turns(what: &str, folder: &Path, which: usize) -> Run {
    run(what)
        .arg(folder.join("turns"))
        .arg(which.to_string())
        .env("GPUSHIM_LIMIT_SCOPE", folder.join("ledger"))
}

/// HAMi-core 200, HAMi 1181: the free bytes wrapped around to 18 EB when more was used than the
/// limit allows.
#[test]
fn usage_above_the_limit_leaves_nothing_free() {
    for policy in ["auto", "blocks", "off"] {
        let [_, seen] = together(|folder, which| {
            in_turns("lowered", folder, which)
                .env("GPUSHIM_LIMIT", ["100M", "50M"][which])
                .env("GPUSHIM_POLICY", policy)
        });
        // What the other one has cached is not free, and given when it is asked for.
        let free = if policy == "off" { 50 } else { 0 };
        let lines = [
            "beside 80: free 0 of 50; 30 more: 2".to_string(),
            format!("alone: free {free} of 50; 30 more: 0"),
        ];
        assert_eq!(seen.stdout.lines().collect::<Vec<_>>(), lines, "{policy}");
    }
}

/// HAMi-core 273, k8s-device-plugin 594: each of two processes passed the check before the other
/// one was counted, or had the limit for itself.
#[test]
fn one_of_two_that_ask_at_once_is_served() {
    const ROUNDS: usize = 40;
    for policy in ["auto", "vmm", "blocks", "off"] {
        let [one, other] = together(|folder, which| {
            in_turns("race", folder, which)
                .arg("60")
                .arg(ROUNDS.to_string())
                .env("GPUSHIM_LIMIT", "100M")
                .env("GPUSHIM_POLICY", policy)
        });
        let rounds = one.stdout.trim_end().bytes().zip(other.stdout.bytes());
        let served: Vec<_> = rounds
            .map(|(one, other)| [one, other].map(char::from))
            .collect();
        assert_eq!(served.len(), ROUNDS, "{policy}");
        let is_right = |pair: &[char; 2]| matches!(pair, ['+', '-'] | ['-', '+']);
        assert!(served.iter().all(is_right), "{policy}: {served:?}");
    }
}

/// HAMi-core 273 with elastic segments: one of two tensors that are made at once is wholly on the
/// device. The other one is refused, or has memory of the host.
#[test]
fn one_of_two_tensors_made_at_once_is_on_the_device() {
    let torch = library("libc10_cuda", &[OsStr::new("-l:libcudart.so.13")]);
    for expands in [None, Some("1")] {
        let all: [_; 2] = together(|folder, _| {
            let run = Run::new(program("elastic")).arg(&torch).arg("race");
            let run = run.arg(folder.join("turns")).arg("60");
            let run = expands.map_or(run.clone(), |value| run.env("TORCH_EXPANDS", value));
            run.env("GPUSHIM_ELASTIC", "auto")
                .env("GPUSHIM_LIMIT", "100M")
                .env("GPUSHIM_LIMIT_SCOPE", folder.join("ledger"))
                .env("STANDIN_LATENCY", "create=20ms")
                .may_complain()
        });
        let is_served = |run: &Outcome| {
            let on_host = run.trace().count(Kind::Alloc, Class::Host);
            run.note("refused") == 0 && on_host == 0
        };
        let served = all.iter().filter(|run| is_served(run)).count();
        assert_eq!(served, 1, "{expands:?}");
    }
}

/// HAMi-core 321: memory of another API, mapped as a buffer, could not be freed.
#[test]
fn a_buffer_of_another_api_is_freed_and_does_not_count() {
    let folder = tempfile::tempdir().expect("a folder");
    for scope in [OsStr::new("process"), folder.path().join("ledger").as_ref()] {
        let shim = run("external")
            .env("GPUSHIM_LIMIT", "64M")
            .env("GPUSHIM_LIMIT_SCOPE", scope)
            .shim();
        let line = "mapped: 0 more, freed: 0, destroyed: 0, released: 0; free 64\n";
        assert_eq!(shim.stdout, line, "{scope:?}");
    }
}

/// HAMi-core 191: a program that ran after another one saw all as free, whatever it held.
#[test]
fn the_next_program_of_a_container_is_counted_too() {
    let folder = tempfile::tempdir().expect("a folder");
    for _ in 0..3 {
        let shim = with_nvml(shared_limit::run("figures"), folder.path()).shim();
        assert!(shim.stdout.contains("free 100 of 100\n"), "{}", shim.stdout);
        assert!(shim.stdout.contains("\nfree 20\n"), "{}", shim.stdout);
    }
}

/// HAMi 43, 1381: in a container the figure of another process with the same id was counted.
#[test]
fn the_machines_process_ids_are_not_taken_for_the_containers() {
    let folder = tempfile::tempdir().expect("a folder");
    let is_allowed = std::process::Command::new("unshare")
        .args(["-Urfp", "true"])
        .status()
        .is_ok_and(|status| status.success());
    if !is_allowed {
        println!("skipped: `unshare -Urfp` is not allowed here");
        return;
    }
    // Process 1 of the namespace is this one, which has 999 bytes more; the other one is in none.
    for (another, free, seconds) in [("1", "9", "60"), ("4194303", "20", "3")] {
        let unshared = Run::new("unshare")
            .arg("-Urfp")
            .arg(program("limit_shared"))
            .arg("figures");
        let shim = with_nvml(unshared, folder.path())
            .env("NVML_BYTES", (90 << 20).to_string())
            .env("NVML_ANOTHER", another)
            .env("NVML_AFTER", "nvml")
            .env("NVML_SECONDS", seconds)
            .shim();
        let line = format!("\nfree {free}\n");
        assert!(shim.stdout.contains(&line), "{another}: {}", shim.stdout);
    }
}

/// HAMi 1834: with a driver newer than the library a program hung at its first call.
#[test]
fn a_newer_driver_is_limited_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let shim = with_nvml(shared_limit::run("figures"), folder.path())
        .env("STANDIN_VERSION", "99000")
        .shim();
    assert!(shim.stdout.contains("free 100 of 100\n"), "{}", shim.stdout);
}
