//! Stream-ordered memory at random: no byte is lost and nothing races, with any use of streams,
//! events, graphs and pools.
//!
//! `GPUSHIM_TEST_LONG=1` makes it the long form: ten million operations (`scripts/test long`).

use std::process::Command;
use std::time::Duration;

use gpushim_trace::{Class, Kind, flags};
use serde_json::Value;

use crate::support::{Outcome, Run, library, program};

/// Operations of each of four threads, and room in the trace for every event. There are eight
/// forms.
fn size() -> (&'static str, &'static str) {
    if std::env::var_os("GPUSHIM_TEST_LONG").is_some() {
        ("312500", "256M")
    } else {
        ("2000", "32M")
    }
}

fn random(seed: &str, operations: &str) -> Run {
    Run::new(program("stream_stress"))
        .args([seed, "4", operations])
        .env("STANDIN_DEVICES", "2")
        .env("GPUSHIM_DECAY", "100ms")
        .limit(Duration::from_secs(1800))
}

fn check(outcome: &Outcome, what: &str) {
    assert_eq!(outcome.code, 0, "{what}: {}", outcome.stdout);
    let [allocated, freed] = ["allocations", "frees"].map(|word| outcome.note(word));
    let operations = outcome.note("operations");
    assert!(
        allocated > operations / 10,
        "{what}: only {allocated} allocations"
    );
    assert_eq!(allocated, freed, "{what}: a block was forgotten");
    for word in ["graphs", "launches", "streams", "pools"] {
        // A launch may find no memory for the graph's own nodes, natively too.
        let in_vain = if word == "launches" {
            outcome.note("failed")
        } else {
            0
        };
        let count = outcome.note(word) + in_vain;
        assert!(
            count > operations / 1000,
            "{what}: {count} {word} in {operations} operations"
        );
    }
}

/// Four threads on two devices with this memory, natively and under the shim.
fn storm(policy: &str, reuse: &str, memory: &str, seed: &str) {
    let (operations, room) = size();
    let (native, shim) = random(seed, operations)
        .env("STANDIN_MEMORY", memory)
        .env("GPUSHIM_POLICY", policy)
        .env("GPUSHIM_REUSE", reuse)
        .env("GPUSHIM_TRACE_SIZE", room)
        .both();
    let what = format!("{policy} {reuse} {memory}");
    check(&native, "native");
    check(&shim, &what);
    // A small memory must have failures: otherwise nothing had to be trimmed or moved. A large one
    // has none, except for allocations beyond a pool's own bound, which fail before a launch does.
    let is_tight = memory != "8G";
    let failures = shim.note("out-of-memory");
    assert_eq!(
        is_tight,
        failures > shim.note("operations") / 1000,
        "{what}: {failures}"
    );
    assert!(
        is_tight || shim.note("failed") == 0,
        "{what}: {}",
        shim.stdout
    );
    let trace = shim.trace();
    let allocated = trace.class(Kind::Alloc, Class::PoolAsync);
    assert_eq!(trace.lost, 0, "{what}: the trace is too small for the test");
    assert!(
        allocated.len() as u64 >= shim.note("allocations"),
        "{what}: allocations are missing in the trace"
    );
    assert_eq!(
        trace.reserved(),
        0,
        "{what}: bytes are still reserved at the end"
    );
    let from = |flag| {
        allocated
            .iter()
            .filter(|event| event.flags & flag != 0)
            .count()
    };
    let [hit, ordered, waited, grown, forwarded] = [
        flags::HIT,
        flags::ORDERED,
        flags::WAITED,
        flags::GROWN,
        flags::FORWARDED,
    ]
    .map(from);
    println!(
        "{what}: {} allocations ({hit} hits, {ordered} ordered, {waited} waited, {grown} grown, {forwarded} forwarded; \
         {} failed, natively {}) in {:?}, natively {:?}",
        allocated.len(),
        shim.note("out-of-memory"),
        native.note("out-of-memory"),
        shim.wall,
        native.wall
    );
}

#[test]
fn stress_under_auto() {
    storm("auto", "order", "96M", "1");
}

#[test]
fn stress_under_auto_with_waits() {
    storm("auto", "wait", "128M", "2");
}

#[test]
fn stress_under_auto_when_strict() {
    storm("auto", "strict", "96M", "3");
}

#[test]
fn stress_under_auto_with_room() {
    storm("auto", "order", "8G", "4");
}

#[test]
fn stress_under_blocks() {
    storm("blocks", "order", "96M", "6");
}

#[test]
fn stress_without_a_pool() {
    storm("off", "order", "192M", "8");
}

#[test]
fn every_door_leads_to_the_same_pool() {
    for (door, devices) in [("proc", "1"), ("default", "2")] {
        let run = random("9", "1000")
            .env("DOOR", door)
            .env("STANDIN_DEVICES", devices)
            .env("STANDIN_MEMORY", "256M");
        let (_, shim) = run.both();
        check(&shim, door);
        let seen = shim.trace().count(Kind::Alloc, Class::PoolAsync) as u64;
        assert!(
            seen >= shim.note("allocations"),
            "{door}: {seen} allocations in the trace"
        );
    }
}

#[test]
fn the_race_detector_notices_a_pool_that_minds_no_order() {
    let racing = random("1", "1000")
        .arg("0")
        .env("DOOR", "default")
        .env("UNSAFE", "order")
        .preload_before(library("stream_unsafe", &[]))
        .may("")
        .native();
    let races = racing
        .findings
        .iter()
        .filter(|finding| finding.starts_with("race:"))
        .count();
    assert!(races > 10, "{:?} {}", racing.findings, racing.stdout);
}

#[test]
fn the_program_notices_a_block_that_is_handed_out_twice() {
    let twice = random("1", "1000")
        .arg("0")
        .env("DOOR", "default")
        .env("UNSAFE", "live")
        .preload_before(library("stream_unsafe", &[]))
        .may("")
        .native();
    assert_eq!(twice.code, 1, "{}", twice.stdout);
    assert!(twice.stdout.contains("wrong: byte "), "{}", twice.stdout);
}

#[test]
fn memory_in_pieces_makes_a_large_block() {
    for how in ["same", "other", "unordered", "synchronized"] {
        for policy in ["auto", "blocks", "off"] {
            let (native, shim) = Run::new(program("stream_moves"))
                .arg(how)
                .env("STANDIN_MEMORY", "260M")
                .env("GPUSHIM_POLICY", policy)
                .both();
            let [before, moved] = [&native, &shim].map(|outcome| outcome.note("moved"));
            let what = format!("{policy}, {how}: {moved} of 20, natively {before}");
            println!("{what}");
            if how == "synchronized" {
                assert_eq!((before, moved), (20, 20), "{what}");
            }
            // Natively memory is moved only when the host has waited. Pages of the shim's own pool
            // move at once.
            let trace = shim.trace();
            let is_ours = |flags: u16| flags & flags::FORWARDED == 0;
            let served = trace
                .class(Kind::Alloc, Class::PoolAsync)
                .iter()
                .any(|event| is_ours(event.flags));
            if policy == "auto" && served && how != "unordered" {
                assert_eq!(moved, 20, "{what}");
            }
        }
    }
}

/// Events of a kind as `gpushim events` lists them in JSON.
fn listed(outcome: &Outcome, kind: &str) -> Vec<Value> {
    let trace = outcome.files().concat();
    let output = Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .args(["events", "--format", "json", "--kind", kind, &trace])
        .current_dir(outcome.folder())
        .output()
        .expect("the command");
    assert!(output.status.success(), "{output:?}");
    let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let events = listed["results"][0]["events"].as_array();
    events.expect("events").clone()
}

#[test]
fn the_trace_names_the_stream_of_each_block() {
    for policy in ["auto", "blocks", "off"] {
        let (_, shim) = Run::new(program("async_streams"))
            .arg("trace")
            .env("GPUSHIM_POLICY", policy)
            .both();
        // The program's report: the stream and the bytes of each allocation, and the stream of its
        // free.
        let said: Vec<Vec<u64>> = shim
            .notes("block")
            .iter()
            .map(|words| {
                words
                    .iter()
                    .map(|word| word.parse().expect("a number"))
                    .collect()
            })
            .collect();
        assert_eq!(said.len(), 5, "{}", shim.stdout);
        // The legacy stream has two names.
        let legacy = |stream: u64| stream.max(1);
        for (kind, stream) in [("alloc", 0), ("free", 2)] {
            let listed = listed(&shim, kind);
            assert_eq!(listed.len(), said.len(), "{policy}: {listed:?}");
            for (event, said) in listed.iter().zip(&said) {
                let what = format!("{policy}: {event} instead of {said:?}");
                assert_eq!(event["class"], "pool-async", "{what}");
                assert_eq!(event["size"], said[1], "{what}");
                assert_eq!(
                    event["stream"].as_u64().map(legacy),
                    Some(legacy(said[stream])),
                    "{what}"
                );
                assert_eq!(
                    (&event["device"], &event["result"]),
                    (&0.into(), &0.into()),
                    "{what}"
                );
            }
        }
    }
}

/// Threads that contend for a pool get caches of their own.
///
/// Every block is freed nevertheless, and no two threads have one block at a time.
#[test]
fn threads_that_crowd_lose_nothing() {
    const PAIRS: usize = 40_000;
    for policy in ["vmm", "blocks"] {
        let run = Run::new(program("crowd")).args(["4", &PAIRS.to_string()]);
        let run = run.env("GPUSHIM_POLICY", policy);
        let outcome = run.env("GPUSHIM_TRACE_SIZE", "64M").shim();
        assert_eq!(outcome.stdout, "in use: 0\n", "{policy}");
        let trace = outcome.trace();
        assert_eq!(trace.lost, 0, "{policy}: the trace is too small");
        let made = trace.class(Kind::Alloc, Class::PoolAsync).len();
        let freed = trace.count(Kind::Free, Class::PoolAsync);
        assert_eq!((made, freed), (8 * PAIRS, 8 * PAIRS), "{policy}");
    }
}
