use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::export::frames::folded as folded_frames;
use crate::metrics::metrics;
use crate::recording::open;
use gpushim_trace::{Class, Cost, Event, Kind, Record, Writer, WriterOptions, flags};

const FORMATS: [Format; 7] = [
    Format::MemoryViz,
    Format::Perfetto,
    Format::Firefox,
    Format::Pprof,
    Format::Folded,
    Format::Rmm,
    Format::Json,
];

fn data(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data")).join(name)
}

fn written(format: Format, recordings: &[Box<dyn Recording>]) -> Vec<u8> {
    let mut out = Vec::new();
    write(format, recordings, Measure::Live, &mut out).unwrap();
    out
}

fn reopened(content: &[u8]) -> Box<dyn Recording> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, content).unwrap();
    open(&path).unwrap()
}

/// Memory events of a recording, without facts that other formats do not carry.
fn memory(recording: &dyn Recording) -> Vec<(u64, &'static str, u64, u64)> {
    let is_memory = |record: &Record| {
        matches!(
            record.event.kind,
            Kind::TensorAlloc | Kind::TensorFree | Kind::Reserve | Kind::Release
        )
    };
    let of = |record: Record| {
        let event = record.event;
        (record.ns, event.kind.name(), event.address, event.size)
    };
    recording.events().filter(is_memory).map(of).collect()
}

/// Two blocks in segments of their own, one freed, a range, an out-of-memory.
fn trace(path: &Path) -> Box<dyn Recording> {
    let writer = Writer::create(path, &WriterOptions::default()).unwrap();
    let event = |kind, address, size| Event {
        device: 1,
        thread: 5,
        address,
        size,
        flags: flags::FORWARDED,
        extra: [3, Cost::pack(100, 1024)],
        ..Event::new(kind, Class::PoolAsync)
    };
    writer.record_alloc(&event(Kind::Alloc, 0x1000, 1000));
    writer.record_alloc(&event(Kind::Alloc, 0x9000, 600));
    writer.record_free(&event(Kind::Free, 0x1000, 1000));
    writer.record(&event(Kind::OutOfMemory, 0, 1 << 50));
    drop(writer);
    open(path).unwrap()
}

#[test]
fn a_snapshot_comes_back_as_it_was() {
    let original = open(&data("training.pickle.gz")).unwrap();
    let expected = memory(&*original);
    let facts = original.live().unwrap();
    let again = reopened(&written(Format::MemoryViz, &[original]));
    assert_eq!(again.problems(), [] as [&str; 0]);
    let live = again.live().unwrap();
    assert_eq!(live.len(), facts.len());
    assert!(
        live.iter()
            .zip(&facts)
            .all(|(a, b)| a.event.size == b.event.size)
    );
    // Blocks from the beginning are in the history now; the memory is the same.
    let same = memory(&*again);
    assert_eq!(same.len(), expected.len());
    assert_eq!(same, expected);
}

#[test]
fn stacks_come_back_as_they_were() {
    let original = open(&data("forward.pickle.gz")).unwrap();
    let stacks = |recording: &dyn Recording| {
        let mut names = recording.names();
        let of_alloc = |r: &Record| r.event.kind == Kind::TensorAlloc && r.event.stack != 0;
        let records: Vec<Record> = recording.events().filter(of_alloc).collect();
        let folded = records
            .iter()
            .map(|r| folded_frames(&names.stack(r.event.stack)));
        folded.collect::<Vec<String>>()
    };
    let expected = stacks(&*original);
    assert_eq!(expected.len(), 937);
    let again = reopened(&written(Format::MemoryViz, &[original]));
    assert_eq!(stacks(&*again), expected);
}

#[test]
fn rmm_logs_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let original = trace(&dir.path().join("a.trace"));
    let said = |recording: &dyn Recording| {
        let of = |record: Record| {
            let e = record.event;
            (
                e.kind,
                e.address,
                e.size,
                e.thread,
                recording.stream(&record),
            )
        };
        recording.events().map(of).collect::<Vec<_>>()
    };
    let expected = said(&*original);
    let log = written(Format::Rmm, &[original]);
    assert!(log.starts_with(b"Thread,Time,Action,Pointer,Size,Stream\n5,"));
    let again = reopened(&log);
    assert_eq!(again.problems(), [] as [&str; 0]);
    assert_eq!(said(&*again), expected);
}

#[test]
fn sums_agree_between_formats() {
    let live: u64 = {
        let recording = open(&data("forward.pickle.gz")).unwrap();
        recording
            .live()
            .unwrap()
            .iter()
            .map(|block| block.event.size)
            .sum()
    };
    let folded = written(Format::Folded, &[open(&data("forward.pickle.gz")).unwrap()]);
    let numbers = std::str::from_utf8(&folded).unwrap().lines();
    let sum: u64 = numbers
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    assert_eq!(sum, live);
    let text = written(
        Format::Firefox,
        &[open(&data("forward.pickle.gz")).unwrap()],
    );
    let firefox: Value = serde_json::from_slice(&text).unwrap();
    let counter = &firefox["counters"][0]["samples"]["count"];
    let sum: f64 = counter
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_f64().unwrap())
        .sum();
    assert_eq!(sum as u64, live);
}

#[test]
fn json_names_each_stack_before_it_is_used() {
    let text = written(Format::Json, &[open(&data("forward.pickle.gz")).unwrap()]);
    let lines: Vec<Value> = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(lines[0]["format"], "PyTorch memory snapshot");
    assert_eq!(lines[0]["facts"]["framework"][0], "PyTorch");
    let mut told = std::collections::HashSet::new();
    for line in &lines[1..] {
        if line.get("frames").is_some() {
            told.insert(line["stack"].as_u64().unwrap());
        } else if let Some(stack) = line["stack"].as_u64() {
            assert!(told.contains(&stack));
        }
    }
    assert!(told.len() > 10);
}

#[test]
fn a_log_of_rmm_is_of_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let two = ["a", "b"].map(|name| trace(&dir.path().join(name)));
    let error = write(Format::Rmm, &two, Measure::Peak, &mut Vec::new());
    assert!(error.unwrap_err().to_string().contains("name one file"));
    for format in FORMATS.into_iter().filter(|format| *format != Format::Rmm) {
        assert!(!written(format, &two).is_empty(), "{format:?}");
    }
}

#[test]
fn metrics_end_with_what_is_live() {
    let dir = tempfile::tempdir().unwrap();
    let text = metrics(&[trace(&dir.path().join("a.trace"))]);
    let value = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name}{{")));
        let line = line.unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(
            line.contains(&format!("pid=\"{}\"", std::process::id())),
            "{line}"
        );
        line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    };
    assert_eq!(value("gpushim_live_blocks"), 1);
    assert_eq!(value("gpushim_requested_bytes"), 600);
    assert_eq!(value("gpushim_allocated_bytes"), 1024);
    assert_eq!(value("gpushim_events_total"), 4);
    assert_eq!(value("gpushim_out_of_memory_total"), 1);
    assert_eq!(metrics(&[]), "# EOF\n");
}

/// Everything of a recording, in every format.
fn all(recording: Box<dyn Recording>) {
    let recordings = [recording];
    for format in FORMATS {
        written(format, &recordings);
    }
    metrics(&recordings);
}

#[test]
fn empty_recordings_are_written() {
    all(reopened(b"op,ptr,size,stream,thread,time_ns\n"));
    all(reopened(b"\x80\x02}X\x08\x00\x00\x00segments]s."));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn damaged_snapshots_are_written(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30),
    ) {
        static SAMPLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let mut bytes = SAMPLE.get_or_init(|| {
            let packed = std::fs::File::open(data("inference.pickle.gz")).unwrap();
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut GzDecoder::new(packed), &mut bytes).unwrap();
            bytes
        }).clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(recording) = open(&path) {
            all(recording);
        }
    }

    #[test]
    fn hostile_requests_are_written(
        lines in prop::collection::vec(
            ("alloc|free|failure", any::<u64>(), any::<u64>(), any::<u64>(), 0..4_u64, any::<u64>()), 0..40,
        ),
        few in any::<bool>(),
    ) {
        let mut text = "op,ptr,size,stream,thread,time_ns\n".to_string();
        for (op, ptr, size, stream, thread, time) in lines {
            let ptr = if few { ptr % 4 * 256 } else { ptr };
            text += &format!("{op},{ptr},{size},{stream},{thread},{time}\n");
        }
        all(reopened(text.as_bytes()));
    }
}
