//! The mode `full`, end to end: all events, compressed, behind the mapped part.
//!
//! `GPUSHIM_TEST_LONG=1` makes the paced run one of ten minutes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gpushim_trace::{Class, Event, Kind, Series, Trace};

use crate::support::{Outcome, Run, program};

/// Blocks that `paced` keeps.
const LIVE: u64 = 64;

fn full() -> Run {
    Run::new(program("paced"))
        .env("GPUSHIM_TRACE_MODE", "full")
        .env("GPUSHIM_SPOOL_FLOOR", "0")
}

/// Run of `paced` with this number of allocations, this rate of events, and this end.
fn paced(allocations: u64, rate: u64, end: &[&str]) -> Run {
    let numbers = [allocations.to_string(), rate.to_string()];
    full().args(numbers).args(end)
}

fn traces(outcome: &Outcome) -> Vec<PathBuf> {
    let names = outcome.files().into_iter();
    let traces = names.filter(|name| name.ends_with(".trace"));
    traces.map(|name| outcome.folder().join(name)).collect()
}

fn only_trace(outcome: &Outcome) -> PathBuf {
    let mut traces = traces(outcome);
    assert_eq!(traces.len(), 1, "{:?}", outcome.files());
    traces.remove(0)
}

/// Bytes of a trace behind its mapped part.
pub fn spool_bytes(trace: &Path) -> u64 {
    let all = fs::metadata(trace).expect("its size").len();
    let opened = Trace::open_ring(trace).expect("a trace");
    all.saturating_sub(opened.header().file_bytes)
}

/// Counts of the events of `paced`.
#[derive(Debug, Default)]
struct Told {
    events: u64,
    allocations: u64,
    frees: u64,
}

/// The number of an allocation of `paced`, modulo 2^20: the inverse of its `size_of`.
fn number_of(size: u64) -> u64 {
    // Newton's iteration for the inverse modulo 2^20.
    let factor = 0x9e375_u64;
    let inverse = (0..5).fold(1_u64, |x, _| {
        x.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(x)))
    });
    (size - 1).wrapping_mul(inverse) & 0xfffff
}

/// Reads a trace of `paced` and compares its events with the actions of `paced`.
///
/// No record is wrong, and each is there once, in order. If no event is lost, none is missing.
fn told(trace: &Trace) -> Told {
    let (mut told, mut last) = (Told::default(), 0);
    // Number and address of the newest allocations, by their place.
    let mut live = [None::<Event>; LIVE as usize];
    let (mut next, mut missing) = (0, 0);
    for record in trace.events() {
        assert!(record.ns >= last, "{record:?} is out of order");
        last = record.ns;
        told.events += 1;
        let event = record.event;
        if event.class != Class::Device || event.result != 0 {
            continue;
        }
        match event.kind {
            Kind::Alloc => {
                told.allocations += 1;
                assert!((1..=1 << 20).contains(&event.size), "{event:?}");
                // The numbers begin at 0 and are consecutive, except for missing events.
                let number = number_of(event.size);
                missing += number.wrapping_sub(next) & 0xfffff;
                next = number + 1;
                live[(number % LIVE) as usize] = Some(event);
            }
            Kind::Free => {
                told.frees += 1;
                let at = (number_of(event.size) % LIVE) as usize;
                if let Some(made) = live[at].take_if(|made| made.size == event.size) {
                    assert_eq!(event.address, made.address, "{event:?}");
                } else {
                    assert!(trace.lost() > 0, "{event:?} was never allocated");
                }
            }
            _ => {}
        }
    }
    assert_eq!(told.events, trace.readable());
    assert_eq!(
        trace.recorded(),
        trace.readable() + trace.lost() + trace.torn()
    );
    assert!(missing == 0 || trace.lost() > 0, "{missing} are missing");
    told
}

fn open(path: &Path) -> Trace {
    let trace = Trace::open(path).unwrap_or_else(|error| panic!("failed to {error}"));
    assert_eq!(trace.problems(), [] as [&str; 0]);
    trace
}

#[test]
fn every_event_is_kept_of_many_more_than_the_ring_holds() {
    // A machine with better things to do may let the ring be lapped once: then the larger ring has
    // to do.
    for size in ["4M", "4M", "16M"] {
        let allocations = 150_000;
        let run = paced(allocations, 100_000, &["end"]).env("GPUSHIM_TRACE_SIZE", size);
        let outcome = run.shim();
        assert_eq!((&outcome.told()[..], outcome.code), ("done\n", 0));
        let path = only_trace(&outcome);
        let trace = open(&path);
        let (told, bytes) = (told(&trace), spool_bytes(&path));
        println!(
            "ring of {size}: {told:?}, {} lost, {bytes} bytes",
            trace.lost()
        );
        assert!(trace.recorded() >= 2 * allocations);
        assert!(bytes <= 16 * trace.spooled(), "{bytes} bytes");
        let sums = trace.totals().expect("sums");
        let sums = sums.layer(gpushim_trace::Layer::Device);
        assert_eq!((sums.allocations, sums.frees), (allocations, allocations));
        if trace.lost() > 0 {
            continue;
        }
        assert_eq!((told.allocations, told.frees), (allocations, allocations));
        assert_eq!(trace.spooled(), trace.recorded());
        assert!(trace.recorded() > trace.capacity() && !trace.has_wrapped());
        let listed = Command::new(env!("CARGO_BIN_EXE_gpushim"))
            .args(["events", "--kind", "alloc,free"])
            .arg(&path)
            .output()
            .expect("gpushim events");
        let lines = listed.stdout.split(|byte| *byte == b'\n').count() as u64;
        // The heading, and the text after the last line.
        assert_eq!(lines, 2 * allocations + 2);
        assert_eq!(String::from_utf8_lossy(&listed.stderr), "");
        return;
    }
    panic!("events were lost of a ring that nearly holds them all");
}

#[test]
fn what_a_ring_far_too_small_has_lost_is_counted() {
    for size in ["64K", "256K"] {
        let allocations = 200_000;
        let run = paced(allocations, 0, &["end"]).env("GPUSHIM_TRACE_SIZE", size);
        let outcome = run.shim();
        let trace = open(&only_trace(&outcome));
        let told = told(&trace);
        println!("ring of {size}: {told:?}, {} lost", trace.lost());
        assert!(trace.recorded() >= 2 * allocations);
        // Known even so.
        let sums = trace.totals().expect("sums");
        let sums = sums.layer(gpushim_trace::Layer::Device);
        assert_eq!((sums.allocations, sums.frees), (allocations, allocations));
    }
}

#[test]
fn after_missed_events_the_timeline_ends_at_the_truth() {
    for mode in ["full", "ring"] {
        // Far too fast for a ring of 1,024 events.
        let run = paced(100_000, 0, &["rest"])
            .env("GPUSHIM_TRACE_SIZE", "64K")
            .env("GPUSHIM_TRACE_MODE", mode)
            // Whole units of the driver's: it takes no more than the pool asks for.
            .env("GPUSHIM_POLICY", "vmm");
        let outcome = run.shim();
        let trace = open(&only_trace(&outcome));
        let timeline = trace.timeline();
        // The housekeeper comes by each 10 ms at most; the spool's thread may be fast enough.
        println!("{mode}: {} gaps", timeline.gaps);
        assert!(timeline.gaps > 0 || mode == "full", "nothing was missed");
        let device = timeline.devices.first().expect("a device");
        let last = |series| {
            let span = device.get(series).last().expect("a stretch of time");
            (span.min, span.max)
        };
        let kept = 5 << 20;
        assert_eq!(last(Series::Requested), (kept, kept + 1), "{mode}");
        // Blocks are no smaller than their requests.
        let (least, most) = last(Series::Allocated);
        assert!(least >= kept && most > least && most < 2 * kept, "{mode}");
        let held = outcome.note("held");
        assert!(held >= kept);
        assert_eq!(last(Series::Reserved), (held, held), "{mode}");
    }
}

#[test]
fn a_kill_leaves_what_was_spooled_and_the_ring() {
    let mut spooled = 0;
    for round in 0..8_u64 {
        // The spool's frames are of 4,096 events, and may be written at any time.
        let (after, us) = (50 + round * 3000, round * 7919 % 9000);
        let end = ["kill", &after.to_string(), &us.to_string()];
        let run = paced(10_000_000, 100_000, &end)
            .env("GPUSHIM_TRACE_SIZE", "1M")
            .env("TRUTH", "{}/truth")
            .may("");
        let outcome = run.shim();
        assert_eq!(outcome.code, -9);
        let words = fs::read(outcome.folder().join("truth")).expect("the truth");
        let word = |at: usize| {
            let word = words.get(at * 8..at * 8 + 8).expect("two words");
            u64::from_le_bytes(word.try_into().expect("eight bytes"))
        };
        let (allocations, frees) = (word(0), word(1));
        let path = only_trace(&outcome);
        let trace = Trace::open(&path).unwrap_or_else(|error| panic!("failed to {error}"));
        // At most the frame that was being written.
        assert!(trace.problems().len() <= 1, "{:?}", trace.problems());
        let told = told(&trace);
        println!("{told:?}, {} spooled", trace.spooled());
        spooled += trace.spooled();
        assert!(trace.torn() <= 4);
        let sums = trace.totals().expect("sums");
        let sums = sums.layer(gpushim_trace::Layer::Device);
        for (known, seen, truth) in [
            (sums.allocations, told.allocations, allocations),
            (sums.frees, told.frees, frees),
        ] {
            assert!(known.abs_diff(truth) <= 1, "{known} {truth}");
            let lost = trace.lost() + trace.torn();
            assert!(
                seen <= truth + 1 && seen + lost >= truth,
                "{seen} {truth} {lost}"
            );
        }
    }
    assert!(spooled > 0);
}

#[test]
fn beyond_the_limit_the_oldest_parts_go_and_that_is_said() {
    const MAX: u64 = 128 << 10;
    let run = paced(150_000, 100_000, &["end"])
        .env("GPUSHIM_TRACE_SIZE", "4M")
        .env("GPUSHIM_SPOOL_SIZE", "128K");
    let outcome = run.shim();
    assert_eq!((&outcome.told()[..], outcome.code), ("done\n", 0));
    let path = only_trace(&outcome);
    let bytes = spool_bytes(&path);
    assert!((MAX / 2..=MAX).contains(&bytes), "{bytes}");
    let trace = open(&path);
    let told = told(&trace);
    println!("{bytes} bytes: {told:?}, {} lost", trace.lost());
    assert!(trace.lost() > 0 && trace.spooled() > 0 && trace.has_wrapped());
    // The newest are there.
    let last = trace.events().filter(|record| {
        record.event.kind == Kind::Free && number_of(record.event.size) == 149_999
    });
    assert_eq!(last.count(), 1);
    let report = Command::new(env!("CARGO_BIN_EXE_gpushim"))
        .arg("report")
        .arg(&path)
        .output()
        .expect("gpushim report");
    let text = String::from_utf8_lossy(&report.stdout).replace([',', '_'], "");
    assert!(text.contains("has wrapped"), "{text}");
}

#[test]
fn a_disk_without_the_room_stops_the_spool_and_nothing_else() {
    let run = paced(50_000, 0, &["end"])
        .env("GPUSHIM_SPOOL_FLOOR", "1000000T")
        .may_complain();
    let outcome = run.shim();
    assert_eq!((&outcome.told()[..], outcome.code), ("done\n", 0));
    let said = outcome.complaints();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with("gpushim: ") && said[0].contains("free"),
        "{said:?}"
    );
    let path = only_trace(&outcome);
    let trace = open(&path);
    assert_eq!((trace.spooled(), spool_bytes(&path)), (0, 0));
    assert!(trace.lost() > 0 && trace.readable() > 0);
    told(&trace);
}

#[test]
fn a_forked_child_writes_into_neither_file() {
    let run = paced(20_000, 0, &["fork"]).env("GPUSHIM_TRACE_SIZE", "16M");
    let outcome = run.shim();
    assert_eq!((&outcome.told()[..], outcome.code), ("child: 0\ndone\n", 0));
    let path = only_trace(&outcome);
    let trace = open(&path);
    let told = told(&trace);
    assert_eq!((told.allocations, told.frees), (20_000, 20_000));
    assert_eq!(trace.lost(), 0);
    let parent = outcome.note("pid");
    let others = trace.events().filter(|record| {
        matches!(record.event.kind, Kind::Alloc | Kind::Free)
            && u64::from(record.event.thread) != parent
    });
    assert_eq!(others.count(), 0);
}

#[test]
fn a_child_that_becomes_another_program_has_files_of_its_own() {
    for end in ["spawn", "exec"] {
        let child = program("paced");
        let child = child.to_string_lossy();
        let run = paced(10_000, 0, &[end, &child, "5000", "0", "end"]);
        let outcome = run.env("GPUSHIM_TRACE_SIZE", "16M").shim();
        assert_eq!(outcome.code, 0, "{}", outcome.stdout);
        let found = traces(&outcome);
        assert_eq!(found.len(), 2, "{end}: {:?}", outcome.files());
        assert_eq!(outcome.files().len(), 2, "{end}");
        let mut counts = Vec::new();
        for path in found {
            let trace = open(&path);
            let told = told(&trace);
            assert_eq!((told.allocations, trace.lost()), (told.frees, 0), "{end}");
            counts.push(told.allocations);
        }
        counts.sort_unstable();
        assert_eq!(counts, [5_000, 10_000], "{end}");
    }
}

#[test]
fn the_end_of_the_process_writes_what_is_left() {
    // Far fewer than fill a frame, and long before the spool would write them by itself.
    for allocations in [1, 100, 3_000] {
        let outcome = paced(allocations, 0, &["end"]).shim();
        let path = only_trace(&outcome);
        let trace = open(&path);
        assert_eq!(told(&trace).frees, allocations);
        assert_eq!(
            (trace.spooled(), trace.lost()),
            (trace.recorded(), 0),
            "{allocations}"
        );
        assert!(spool_bytes(&path) > 0);
    }
}

#[test]
fn a_hundred_thousand_events_a_second() {
    let long = std::env::var_os("GPUSHIM_TEST_LONG").is_some();
    let seconds = if long { 600 } else { 3 };
    let allocations = seconds * 50_000;
    // The ring as it is by default: ten seconds of these events.
    let run = paced(allocations, 100_000, &["end"])
        .env("GPUSHIM_TRACE_SIZE", "64M")
        .limit(Duration::from_secs(seconds * 4 + 120));
    let outcome = run.shim();
    assert_eq!((&outcome.told()[..], outcome.code), ("done\n", 0));
    let path = only_trace(&outcome);
    let trace = open(&path);
    let (told, bytes) = (told(&trace), spool_bytes(&path));
    println!(
        "{:?}: {told:?}, {} lost, {bytes} bytes, {:.2} an event; CPU time: spool {} ms, all {} ms",
        outcome.wall,
        trace.lost(),
        bytes as f64 / trace.spooled() as f64,
        outcome.note("spool_ms"),
        outcome.note("all_ms"),
    );
    assert_eq!(trace.lost(), 0);
    assert_eq!((told.allocations, told.frees), (allocations, allocations));
    assert_eq!(trace.spooled(), trace.recorded());
    assert!(bytes <= 16 * trace.spooled(), "{bytes} bytes");
}
