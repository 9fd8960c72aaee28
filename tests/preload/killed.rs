//! After any kill of the process its trace has the live blocks. The program keeps a record of the
//! truth.
//!
//! `GPUSHIM_TEST_LONG=1`: a thousand kills.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use gpushim_trace::{Class, Layer, Trace};

use crate::spool::spool_bytes;
use crate::support::{Outcome, Run, program};

const THREADS: usize = 4;
const SLOTS: usize = 256;
/// Words of one thread's truth: sums, then four for each slot.
const WORDS: usize = 8 + 4 * SLOTS;

/// Facts that the program recorded before its end.
#[derive(Default)]
struct Truth {
    /// Live for certain: address and bytes.
    live: BTreeMap<u64, u64>,
    /// Blocks being freed: address and bytes.
    leaving: BTreeMap<u64, u64>,
    /// Bytes being allocated; their addresses are not known.
    coming: Vec<u64>,
    allocations: u64,
    frees: u64,
    allocated: u64,
    freed: u64,
}

fn truth(outcome: &Outcome) -> Truth {
    let bytes = fs::read(outcome.folder().join("truth")).expect("the truth");
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    assert_eq!(words.len(), THREADS * WORDS);
    let mut truth = Truth::default();
    for thread in words.chunks_exact(WORDS) {
        truth.allocations += thread[0];
        truth.allocated += thread[1];
        truth.frees += thread[2];
        truth.freed += thread[3];
        for slot in thread[8..].chunks_exact(4) {
            let (address, bytes) = (slot[1], slot[2]);
            match slot[0] {
                0 => {}
                1 => truth.coming.push(bytes),
                2 => assert_eq!(truth.live.insert(address, bytes), None, "the test's own"),
                _ => assert_eq!(truth.leaving.insert(address, bytes), None, "the test's own"),
            }
        }
    }
    truth
}

fn trace_of(outcome: &Outcome) -> PathBuf {
    let name = outcome.files().into_iter().find(|f| f.ends_with(".trace"));
    outcome.folder().join(name.unwrap_or_default())
}

/// Compares a dead process's trace with the truth. Returns the events that it recorded.
fn agrees(outcome: &Outcome) -> u64 {
    let path = trace_of(outcome);
    let truth = truth(outcome);
    let trace = match Trace::open(&path) {
        Ok(trace) => trace,
        // Killed while the file was being created: before the first call had returned.
        Err(_) if truth.allocations == 0 && truth.live.is_empty() => return 0,
        Err(error) => panic!("failed to {error}"),
    };
    // Of a spool the frame that was being written is torn.
    let problems = trace.problems();
    let is_torn = problems.len() == 1 && problems[0].starts_with("the spool ") && outcome.code != 0;
    assert!(problems.is_empty() || is_torn, "{problems:?}");
    assert_eq!(
        trace.readable() + trace.lost() + trace.torn(),
        trace.recorded()
    );
    assert_eq!(trace.events().count() as u64, trace.readable());
    let mut coming = truth.coming.clone();
    let live = trace.live().expect("a live table");
    assert_eq!((live.missed, &live.problems[..]), (0, &[] as &[String]));
    let mut seen = 0;
    for block in live.blocks.iter().map(|block| block.event) {
        if !matches!(block.class, Class::Device | Class::PoolAsync) {
            continue;
        }
        let (address, size) = (block.address, block.size);
        if let Some(bytes) = truth.live.get(&address).or(truth.leaving.get(&address)) {
            assert_eq!(size, *bytes, "{address:#x}");
            seen += u64::from(truth.live.contains_key(&address));
        } else {
            let at = coming.iter().position(|bytes| *bytes == size);
            let at = at.unwrap_or_else(|| panic!("{address:#x}, {size} bytes, was not live"));
            coming.swap_remove(at);
        }
    }
    assert_eq!(
        seen,
        truth.live.len() as u64,
        "live blocks that the trace lacks"
    );
    assert!(live.in_flight <= THREADS as u64, "{}", live.in_flight);

    let sums = trace.totals().expect("sums").layer(Layer::Device);
    let (busy, most) = (THREADS as u64, THREADS as u64 * 3_000_000);
    // A call may be counted before it has returned. The program may not yet have counted a returned
    // call.
    assert!(
        sums.allocations.abs_diff(truth.allocations) <= busy,
        "{sums:?} {}",
        truth.allocations
    );
    assert!(
        sums.frees.abs_diff(truth.frees) <= busy,
        "{sums:?} {}",
        truth.frees
    );
    assert!(
        sums.allocated.abs_diff(truth.allocated) <= most,
        "{sums:?} {}",
        truth.allocated
    );
    assert!(
        sums.freed.abs_diff(truth.freed) <= most,
        "{sums:?} {}",
        truth.freed
    );
    assert!(trace.torn() <= THREADS as u64);
    trace.recorded()
}

fn dies(how: &str, us: u64, policy: &str) -> Outcome {
    killed(how, us, policy).shim()
}

fn killed(how: &str, us: u64, policy: &str) -> Run {
    Run::new(program("killed"))
        .arg(how)
        .arg(us.to_string())
        .env("TRUTH", "{}/truth")
        .env("GPUSHIM_POLICY", policy)
        .env("GPUSHIM_TRACE_SIZE", "256K")
        .env("GPUSHIM_SPOOL_FLOOR", "0")
        .may("")
}

#[test]
fn killed_at_random() {
    let long = std::env::var_os("GPUSHIM_TEST_LONG").is_some();
    let times = if long { 1000 } else { 40 };
    let (mut events, mut most, mut spools) = (0, 0, 0);
    for n in 0..times {
        let policy = ["auto", "blocks", "vmm", "off"][n % 4];
        // Moments that have nothing to do with each other, from the first event on.
        let us = (n as u64 * 7919) % 23_000;
        let mode = ["ring", "full"][n / 4 % 2];
        let mut run = killed("kill", us, policy).env("GPUSHIM_TRACE_MODE", mode);
        if n % 10 == 9 {
            // However busy the machine is: some get far, and their spools, too.
            run = run.env("AFTER", "10000");
        }
        let outcome = run.shim();
        assert_eq!(outcome.code, -9);
        let recorded = agrees(&outcome);
        (events, most) = (events + recorded, recorded.max(most));
        spools += u64::from(recorded > 0 && spool_bytes(&trace_of(&outcome)) > 0);
    }
    println!(
        "{times} kills, {events} events, at most {most} in one process; {spools} with a spool"
    );
    assert!(spools > 0, "nothing was ever spooled");
    assert!(
        most > 3 * 4096,
        "the ring of 4,096 events was never overwritten thrice: {most}"
    );
}

#[test]
fn a_segmentation_fault() {
    assert_eq!(agrees_after("segv"), -11);
}

#[test]
fn an_abort() {
    assert_eq!(agrees_after("abort"), -6);
}

#[test]
fn an_exit_at_once() {
    assert_eq!(agrees_after("_exit"), 7);
}

#[test]
fn out_of_memory() {
    assert_eq!(agrees_after("oom"), 9);
}

#[test]
fn an_ordinary_end() {
    assert_eq!(agrees_after("last"), 0);
}

/// A full disk takes no more of the spool: by a limit on the size of files, or because too little
/// would be left.
///
/// This is reported once, and the program runs on.
#[test]
fn a_full_disk() {
    for (name, value) in [("LIMIT", "4096"), ("GPUSHIM_SPOOL_FLOOR", "1000000T")] {
        for (how, code) in [("last", 0), ("kill", -9), ("segv", -11), ("_exit", 7)] {
            let run = killed(how, 30_000, "auto")
                .env("GPUSHIM_TRACE_MODE", "full")
                .env(name, value)
                .env("AFTER", "5000")
                .may_complain();
            let outcome = run.shim();
            assert!(agrees(&outcome) >= 5000, "{name} {how}");
            assert_eq!(outcome.code, code, "{name} {how}: {}", outcome.stdout);
            let said = outcome.complaints();
            // Who dies at once may die before the first frame.
            let expected = if how == "last" { 1..=1 } else { 0..=1 };
            assert!(expected.contains(&said.len()), "{name} {how}: {said:?}");
            assert!(
                said.iter()
                    .all(|line| line.starts_with("gpushim: the spool"))
            );
            if name == "GPUSHIM_SPOOL_FLOOR" {
                assert_eq!(spool_bytes(&trace_of(&outcome)), 0);
            }
        }
    }
}

fn agrees_after(how: &str) -> i32 {
    let outcome = dies(how, 30_000, "auto");
    assert!(agrees(&outcome) > 0);
    outcome.code
}
