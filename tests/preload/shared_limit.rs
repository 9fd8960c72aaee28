//! A limit that processes share by a ledger.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::{fs, thread};

use gpushim_ledger::{Member, Scope, Terms, View};
use gpushim_trace::Kind;

use crate::support::{Outcome, Run, library, place, program};

const MIB: u64 = 1 << 20;

pub fn run(what: &str) -> Run {
    Run::new(program("limit_shared")).arg(what)
}

/// Runs at the same time that share the device and a folder.
pub fn together<const N: usize>(run: impl Fn(&Path, usize) -> Run + Sync) -> [Outcome; N] {
    let folder = tempfile::tempdir().expect("a folder");
    let one = |which| {
        let run = run(folder.path(), which).env("STANDIN_SHARED", folder.path().join("shared"));
        run.env("STANDIN_MEMORY", "1G").shim()
    };
    thread::scope(|scope| {
        let one = &one;
        let all: [_; N] = std::array::from_fn(|which| scope.spawn(move || one(which)));
        all.map(|run| run.join().expect("a run"))
    })
}

/// Processes at the edge of the limit, some of which are killed: the driver's own count is never
/// above the limit.
#[test]
fn a_crowd_that_is_killed_stays_within_the_limit() {
    let (workers, ms, kills) = match std::env::var_os("GPUSHIM_TEST_LONG") {
        Some(_) => ("8", "120000", "60"),
        None => ("3", "3000", "4"),
    };
    for policy in ["auto", "off"] {
        let shim = run("crowd")
            .args([workers, ms, kills, "96"])
            .env("GPUSHIM_POLICY", policy)
            .env("GPUSHIM_LIMIT", "96M")
            .env("GPUSHIM_LIMIT_SCOPE", "{}/ledger")
            .env("STANDIN_SHARED", "{}/shared")
            .env("STANDIN_MEMORY", "1G")
            .limit(std::time::Duration::from_secs(300))
            .shim();
        assert_eq!(shim.code, 0, "{policy}: {}", shim.stdout);
        assert!(
            shim.stdout.ends_with("wrong: 0\n"),
            "{policy}: {}",
            shim.stdout
        );
        let counts = shim.notes("worker");
        assert_eq!(
            counts.len(),
            workers.parse::<usize>().expect("a number"),
            "{policy}"
        );
        let sum = |at: usize| -> u64 {
            let numbers = counts
                .iter()
                .map(|count| count[at].parse::<u64>().expect("a number"));
            numbers.sum()
        };
        assert_eq!(sum(0), 0, "{policy}: over the limit");
        assert!(
            sum(1) > 0 && sum(2) > 0,
            "{policy}: not at the edge: {counts:?}"
        );
        let ledger = View::read(&shim.folder().join("ledger")).expect("a ledger");
        assert_eq!(ledger.entries, [], "{policy}: all have ended");
    }
}

/// A process that needs memory under the shared limit gets what another one has cached.
#[test]
fn what_one_process_caches_another_can_have() {
    for policy in ["vmm", "blocks"] {
        for family in ["plain", "async"] {
            let seen: [_; 2] = together(|folder, which| {
                let run = Run::new(program("turns")).arg(folder.join("turns"));
                let run = run.arg(which.to_string()).args(["40", "5"]);
                let run = if family == "async" {
                    run.arg(family)
                } else {
                    run
                };
                run.env("GPUSHIM_POLICY", policy)
                    .env("GPUSHIM_LIMIT", "64M")
                    .env("GPUSHIM_LIMIT_SCOPE", folder.join("ledger"))
            });
            for one in &seen {
                assert_eq!(one.note("refused"), 0, "{policy}, {family}");
            }
            let told = |one: &Outcome| one.trace().facts("device.0.peer_processes").len();
            assert!(seen.iter().map(told).sum::<usize>() > 0, "nobody was asked");
        }
    }
}

/// Memory in use is refused to others, with an explanation; once it is free, they get it.
#[test]
fn what_a_peer_uses_is_refused_and_named() {
    for policy in ["vmm", "blocks", "off"] {
        let seen: [_; 2] = together(|folder, which| {
            run("turns")
                .arg(folder.join("turns"))
                .arg((1 - which).to_string())
                .arg("40")
                .env("GPUSHIM_POLICY", policy)
                .env("GPUSHIM_LIMIT", "64M")
                .env("GPUSHIM_LIMIT_SCOPE", folder.join("ledger"))
                .env("RANK", which.to_string())
        });
        // The first one in turn is the second here: it holds 40 MiB, and needs no more.
        let [second, first] = &seen;
        assert_eq!(first.stdout, "in turn 0: 0\n", "{policy}");
        assert_eq!(second.stdout, "in turn 1: 2\n", "{policy}");
        assert_eq!(second.trace().of(Kind::OutOfMemory).len(), 1);
        let trace = second.trace();
        let peers = trace.facts("limit.peers.0").join("\n");
        let pid = first.trace().pid();
        let named = format!(" {pid} 1 limit_shared");
        assert!(peers.contains(&named), "{policy}: {peers}");
        assert!(peers.ends_with(" turns turns 0"), "{policy}: {peers}");
        let bytes: u64 = peers
            .split(' ')
            .next()
            .expect("bytes")
            .parse()
            .expect("bytes");
        assert!((40 * MIB..=64 * MIB).contains(&bytes), "{policy}: {peers}");
        let told = command(&["oom"], &[trace.path().as_os_str()]);
        let evidence =
            format!("of the same limit, process {pid}, rank 1 held 40.0 MiB: limit_shared");
        assert!(told.contains(&evidence), "{policy}: {told}");
        assert!(
            told.contains(
                "Other processes held 40.0 MiB of the 64.0 MiB that GPUSHIM_LIMIT allows to all"
            ),
            "{policy}: {told}"
        );
    }
}

/// Runs `gpushim` with these words and files. Returns its output.
fn command(words: &[&str], files: &[&OsStr]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .args(words)
        .args(files)
        .output()
        .expect("the command");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `top`, `metrics` and `doctor` show the processes of a ledger.
#[test]
fn commands_show_the_ledger() {
    let shim = run("figures")
        .env("GPUSHIM_LIMIT", "100M")
        .env("GPUSHIM_LIMIT_SCOPE", "{}/ledger")
        .shim();
    let trace = shim.trace();
    let ledger = shim.folder().join("ledger");
    assert_eq!(
        trace.facts("limit.ledger"),
        [ledger.to_str().expect("a path")]
    );
    let terms = Terms {
        limit: 100 * MIB,
        guarantee: 10 * MIB,
        rank: Some(5),
        name: "this test".to_string(),
    };
    let member = Member::join(&Scope::File(ledger.clone()), terms).expect("a member");
    let device = member.device([0x5a; 16]).expect("a place");
    assert!(member.take(device, 40 * MIB));
    let pid = std::process::id();
    let name = "GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a";
    let told = command(&["top", "--once"], &[trace.path().as_os_str()]);
    assert!(
        told.contains(&format!("{name}: 40.0 MiB of 100.0 MiB held\n")),
        "{told}"
    );
    assert!(told.contains(&format!("{pid}  [5] this test\n")), "{told}");
    let told = command(&["metrics"], &[trace.path().as_os_str()]);
    let labels = format!("ledger=\"{}\",device=\"{name}\"", ledger.display());
    for line in [
        format!("gpushim_shared_limit_bytes{{{labels}}} {}\n", 100 * MIB),
        format!(
            "gpushim_shared_limit_held_bytes{{{labels},pid=\"{pid}\",rank=\"5\"}} {}\n",
            40 * MIB
        ),
    ] {
        assert!(told.contains(&line), "{line}{told}");
    }
    let doctor = |scope: &Path, required: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
            .args(["doctor", "--all"])
            .env("GPUSHIM_LIMIT", "100M")
            .env("GPUSHIM_LIMIT_SCOPE", scope)
            .env("GPUSHIM_LIMIT_REQUIRED", required)
            .output();
        let told = String::from_utf8_lossy(&output.expect("the command").stdout).into_owned();
        // Lines are wrapped.
        told.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let told = doctor(&ledger, "off");
    let there = format!(
        "shared by {}: processes there 1; of {name} 40.0 MiB are held",
        ledger.display()
    );
    assert!(told.contains(&there), "{told}");
    fs::write(shim.folder().join("none"), "none").expect("written");
    let told = doctor(&shim.folder().join("none"), "on");
    assert!(
        told.contains("a program that uses CUDA does not start"),
        "{told}"
    );
}

/// A program that cannot be preloaded does not start, if its limit is required.
#[test]
fn run_refuses_what_would_have_no_limit() {
    let run = |variables: &[(&str, &str)]| {
        let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
            .args(["run", "true"])
            .env("GPUSHIM_LIMIT_REQUIRED", "on")
            .env("GPUSHIM_LIBRARY", &place().shim)
            .env("GPUSHIM_TRACE", "off")
            .envs(variables.iter().copied())
            .output()
            .expect("the command");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), told)
    };
    let (is_fine, told) = run(&[("GPUSHIM_LIMIT", "1G")]);
    assert!(is_fine, "{told}");
    for variables in [&[][..], &[("GPUSHIM_LIMIT", "1G"), ("GPUSHIM", "off")]] {
        let (is_fine, told) = run(variables);
        assert!(
            !is_fine && told.contains("which GPUSHIM_LIMIT_REQUIRED demands"),
            "{told}"
        );
    }
}

/// Two ledgers on one device know nothing of each other.
#[test]
fn each_ledger_has_the_limit_for_itself() {
    let seen: [_; 2] = together(|folder, which| {
        run("turns")
            .arg(folder.join("turns"))
            .arg(which.to_string())
            .arg("40")
            .env("GPUSHIM_LIMIT", "64M")
            .env(
                "GPUSHIM_LIMIT_SCOPE",
                folder.join(format!("ledger-{which}")),
            )
    });
    for (which, one) in seen.iter().enumerate() {
        assert_eq!(one.stdout, format!("in turn {which}: 0\n"));
        assert_eq!(
            one.trace().facts("device.0.peer_processes"),
            [] as [&str; 0]
        );
    }
}

/// Gives a run a limit of 100 MiB, and the stand-in of NVML in a folder.
pub fn with_nvml(run: Run, folder: &Path) -> Run {
    let nvml = folder.join("libnvidia-ml.so.1");
    fs::copy(library("lib_nvml", &[]), nvml).expect("a copy");
    let search = [place().libraries.as_os_str(), folder.as_os_str()].join(OsStr::new(":"));
    run.env("LD_LIBRARY_PATH", search)
        .env("GPUSHIM_LIMIT", "100M")
        .env("GPUSHIM_LIMIT_SCOPE", "{}/ledger")
        .env("STANDIN_MEMORY", "1G")
}

/// A query of NVML begins nothing: a child that uses CUDA then has the limit.
#[test]
fn a_child_after_a_query_of_nvml_has_the_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    for scope in ["process", "{}/ledger"] {
        let shim = with_nvml(run("forks"), folder.path())
            .env("GPUSHIM_LIMIT_SCOPE", scope)
            .env("NVML_UUID", "GPU-00112233-4455-6677-8899-aabbccddeeff")
            .shim();
        let lines = [
            "nvml: total 100 free 100 used 0; again 100 100 0",
            "no place for it: 2",
            "child: free 100 of 100; too much: 2",
        ];
        assert_eq!(shim.stdout.lines().collect::<Vec<_>>(), lines, "{scope}");
    }
}

/// All queries see the limit. NVML's figure of what the process uses counts, with its context.
#[test]
fn every_query_sees_the_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let shim = with_nvml(run("figures"), folder.path())
        .env("NVML_BYTES", (90 * MIB).to_string())
        .env("NVML_AFTER", "nvml")
        .env("NVML_SECONDS", "60")
        .shim();
    let lines = [
        "nvml: total 100 free 100 used 0; again 100 100 0",
        "no place for it: 2",
        "without a context: 201 201, the device has 100",
        "mapped: too much 2, freed 0",
        "no place for it: 1; for either: 0 0 0",
        "free 100 of 100",
        "0 0 0 0 ",
        "a foreign address: 1",
        // NVML says that the process uses 90 MiB, 10 of which are its context's.
        "free 10",
        "nvml: total 100 free 10 used 90; again 100 10 90",
        "no place for it: 2",
        "free 90",
    ];
    assert_eq!(shim.stdout.lines().collect::<Vec<_>>(), lines);
}

/// NVML's figure counts only if this process took and freed nothing meanwhile. That memory went to
/// another process, so that as much of the device is free, does not show it.
#[test]
fn an_exchange_while_nvml_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let shim = with_nvml(run("exchange"), folder.path())
        .env("GPUSHIM_POLICY", "off")
        .env("NVML_AFTER", "nvml")
        .env("NVML_BYTES", (60 * MIB).to_string())
        .env("NVML_LATER", (20 * MIB).to_string())
        .shim();
    let lines = ["free: 60, then 100, at last 80", "too much: 2"];
    assert_eq!(shim.stdout.lines().collect::<Vec<_>>(), lines);
    let told = command(&["oom"], &[shim.trace().path().as_os_str()]);
    let held = "GPUSHIM_LIMIT 100.0 MiB, of which 20.0 MiB were held";
    assert!(told.contains(held), "NVML's figure counts: {told}");
}

/// Without its limit a program gets no context, if the limit is required.
#[test]
fn a_required_limit_that_is_not_in_force() {
    let run = |scope: &str| {
        run("figures")
            .env("GPUSHIM_LIMIT_REQUIRED", "on")
            .env("GPUSHIM_LIMIT_SCOPE", scope)
            .may_complain()
    };
    for (limit, scope) in [("none", "process"), ("64M", "/proc/none"), ("64M", "job")] {
        let shim = run(scope).env("GPUSHIM_LIMIT", limit).shim();
        assert!(
            shim.stdout.contains("gave 800"),
            "{limit} {scope}: {}",
            shim.stdout
        );
        assert!(
            shim.stderr
                .contains("gpushim: GPUSHIM_LIMIT_REQUIRED is on and no limit is in force"),
            "{}",
            shim.stderr
        );
    }
    let shim = run("process").env("GPUSHIM_LIMIT", "64M").shim();
    assert!(shim.stdout.contains("free 64 of 64\n"), "{}", shim.stdout);
    assert_eq!(shim.stderr, "");
}

/// A ledger that cannot be used costs one line, and the limit holds for the process.
#[test]
fn a_damaged_ledger_leaves_the_limit_of_the_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let ledger = folder.path().join("ledger");
    fs::write(&ledger, "no ledger").expect("written");
    let shim = run("figures")
        .env("GPUSHIM_LIMIT", "64M")
        .env("GPUSHIM_LIMIT_SCOPE", ledger.as_os_str())
        .may_complain()
        .shim();
    assert!(shim.stdout.contains("free 64 of 64\n"), "{}", shim.stdout);
    assert!(shim.stdout.contains("0 0 0 2 \n"), "{}", shim.stdout);
    let lines: Vec<_> = shim.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{}", shim.stderr);
    assert!(lines[0].contains("damaged"), "{}", shim.stderr);
    assert!(lines[0].ends_with("GPUSHIM_LIMIT holds for this process alone"));
    let trace = shim.trace();
    assert_eq!(trace.facts("limit.ledger.problem").len(), 1);
}
