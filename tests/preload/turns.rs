//! Two processes on one device that need its memory in turn.

use std::ffi::OsStr;
use std::path::Path;
use std::thread;

use crate::support::{Outcome, Run, library, program};

/// Two runs at the same time, on a device with this memory, which they share.
fn together(memory: &str, run: impl Fn(&Path, &str) -> Run + Sync, native: bool) -> [Outcome; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let (turns, shared) = (folder.path().join("turns"), folder.path().join("shared"));
    let one = |which| {
        let run = run(&turns, which)
            .env("STANDIN_MEMORY", memory)
            .env("STANDIN_SHARED", &shared);
        if native { run.native() } else { run.shim() }
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| one("1"));
        [one("0"), other.join().expect("the other process")]
    })
}

fn refused(outcomes: &[Outcome; 2]) -> u64 {
    outcomes.iter().map(|outcome| outcome.note("refused")).sum()
}

/// A process that needs memory gets the cached memory of another one. Natively it gets only memory
/// freed by `cuMemFree`.
#[test]
fn what_one_process_caches_another_can_have() {
    for policy in ["vmm", "blocks"] {
        for family in ["plain", "async"] {
            let run = |turns: &Path, which: &str| {
                let run = Run::new(program("turns")).arg(turns).arg(which);
                let run = run.args(["40", "5"]).env("GPUSHIM_POLICY", policy);
                match family {
                    "async" => run.arg(family),
                    _ => run,
                }
            };
            let natively = refused(&together("64M", run, true));
            assert_eq!(natively > 0, family == "async", "{natively}");
            let seen = together("64M", run, false);
            assert_eq!(refused(&seen), 0, "{policy}, {family}");
            let asked = seen.iter().flat_map(|seen| {
                let trace = seen.trace();
                let facts = trace.facts("device.0.peer_processes").len();
                (facts > 0).then_some(())
            });
            assert!(asked.count() > 0, "{policy}, {family}: nobody was asked");
        }
    }
}

/// A process whose driver is slow, as on a busy machine, is waited for.
#[test]
fn a_process_that_gives_memory_slowly_is_waited_for() {
    let run = |turns: &Path, which: &str| {
        let run = Run::new(program("turns")).arg(turns).arg(which);
        let run = run
            .args(["40", "2"])
            .env("GPUSHIM_POLICY", "blocks")
            .env("GPUSHIM_DECAY", "off");
        match which {
            "0" => run.env("STANDIN_FAULT", "cuMemFree_v2:1:0:before=2s"),
            _ => run,
        }
    };
    assert_eq!(refused(&together("64M", run, false)), 0);
}

/// Loaded code takes an unknown amount of device memory.
#[test]
fn code_finds_the_memory_that_another_process_caches() {
    let run = |turns: &Path, which: &str| {
        let run = Run::new(program("turns")).arg(turns).arg(which);
        let run = run.args(["40", "3", "loads"]);
        run.env("STANDIN_MODULE_BYTES", "40M")
    };
    for native in [true, false] {
        assert_eq!(refused(&together("64M", run, native)), 0, "{native}");
    }
}

/// Segments that natively do not fit on the device together.
#[test]
fn segments_of_two_processes_that_need_memory_in_turn() {
    let torch = library("libc10_cuda", &[OsStr::new("-l:libcudart.so.13")]);
    let run = |elastic: &'static str| {
        let torch = &torch;
        move |turns: &Path, which: &str| {
            let run = Run::new(program("elastic")).arg(torch).arg("turns");
            run.arg(turns).arg(which).env("GPUSHIM_ELASTIC", elastic)
        }
    };
    assert!(refused(&together("96M", run("off"), true)) > 0);
    for elastic in ["auto", "on"] {
        let seen = together("96M", run(elastic), false);
        assert_eq!(refused(&seen), 0, "{elastic}: {}", seen[1].stdout);
        for one in &seen {
            assert!(one.stdout.contains("wrong bytes: 0\n"), "{}", one.stdout);
            let facts = one.trace();
            let on_host = facts.facts("device.0.elastic");
            assert!(on_host.is_empty(), "{elastic}: {on_host:?}");
        }
    }
}
