//! Spools made to hurt who reads them: small frames that claim much.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use gpushim_trace::{Trace, Writer};

use crate::bounded::{READERS, gpushim};
use crate::stacks::{allocated, options};

/// The most events of a frame.
const FRAME_EVENTS: u32 = 32 << 10;

/// Contents of a frame and its header.
struct Frame {
    events: u32,
    runs: (u32, Vec<u8>),
    columns: (u32, Vec<u8>),
    /// The bytes after the header that it claims, where they are not its runs and columns.
    claims: Option<[u32; 2]>,
    first: u64,
}

/// Checksum as defined in docs/trace-format.md.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Frame {
    fn bytes(&self, trace: u64, number: u64) -> Vec<u8> {
        let [runs, columns] = self
            .claims
            .unwrap_or([self.runs.1.len() as u32, self.columns.1.len() as u32]);
        let rest = [&self.runs.1[..], &self.columns.1[..]].concat();
        let mut bytes = b"gpuspool".to_vec();
        for value in [1_u32, 96] {
            bytes.extend(value.to_le_bytes());
        }
        for value in [trace, number] {
            bytes.extend(value.to_le_bytes());
        }
        for value in [self.events, self.runs.0, runs, self.columns.0, columns, 0] {
            bytes.extend(value.to_le_bytes());
        }
        for value in [self.first, self.first, 0, checksum(&rest)] {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(checksum(&bytes).to_le_bytes());
        assert_eq!(bytes.len(), 96);
        bytes.extend(rest);
        bytes
    }
}

fn number(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn packed(plain: &[u8]) -> (u32, Vec<u8>) {
    let packed = zstd::bulk::compress(plain, 19).expect("compressed");
    (plain.len() as u32, packed)
}

/// A frame of as many events as there may be, all with these words: head, size.
fn alike(first: u64, head: u64) -> Frame {
    let run = [number(0), number(0), number(FRAME_EVENTS.into())].concat();
    let places = vec![0; FRAME_EVENTS as usize];
    let mut columns = places.clone();
    // The second half of a table: its one value, as a difference.
    for value in [head, 7, 0, 1 << 30, 1 << 20, 0, 0] {
        columns.extend(&places);
        columns.extend(number(2 * value));
    }
    Frame {
        events: FRAME_EVENTS,
        runs: packed(&run),
        columns: packed(&columns),
        claims: None,
        first,
    }
}

/// A trace with a few events, its wall clock and the ticks after its last event.
fn trace(path: &Path) -> (u64, u64) {
    let writer = Writer::create(path, &options(1 << 20)).expect("a trace");
    (1..=100).for_each(|number| allocated(&writer, number, 0));
    drop(writer);
    let bytes = std::fs::read(path).expect("read");
    let trace = Trace::from_bytes(path, &bytes).expect("a trace");
    (
        trace.header().wall_ns,
        trace.header().clock.start.ticks + 1_000_000_000,
    )
}

/// Appends frames to a trace.
fn append(trace: &Path, frames: &[u8]) {
    let file = std::fs::File::options().append(true).open(trace);
    file.expect("opened").write_all(frames).expect("written");
}

/// Runs some subcommands of each sort: one pass over the events, several passes, and events kept in
/// memory.
fn read_all(folder: &Path, readers: &[&[&str]], mib: u64, limit: Duration) {
    for reader in readers {
        let args = [reader, &["a.trace"][..]].concat();
        let begin = Instant::now();
        let ran = gpushim(folder, &args, mib, limit);
        println!("{args:?}: {:?}", begin.elapsed());
        assert!(
            matches!(ran.code, Some(0..=2)),
            "{args:?}: {:.1000}",
            ran.text()
        );
    }
}

#[test]
fn few_bytes_with_millions_of_events() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.trace");
    let (wall, ticks) = trace(&path);
    let mut spool = Vec::new();
    let mut count = 0;
    // Allocations and frees by turns: iterations, as many as there are events.
    while spool.len() < 86 << 10 {
        let frame = alike(ticks + count, 1 + count % 2);
        spool.extend(frame.bytes(wall, count));
        count += 1;
    }
    println!("{count} frames of {} bytes", spool.len() as u64 / count);
    append(&path, &spool);
    let opened = Trace::open(&path).expect("a trace");
    println!("{} events, {:?}", opened.readable(), opened.problems());
    let most = (1 << 20) + 16 * spool.len() as u64;
    let believed = most / u64::from(FRAME_EVENTS) * u64::from(FRAME_EVENTS);
    assert_eq!(opened.spooled(), believed);
    let problems = opened.problems().join(" ");
    assert!(
        problems.contains("frames are left out: they claim more events"),
        "{problems}"
    );
    read_all(folder.path(), &READERS, 1024, Duration::from_secs(60));
}

#[test]
fn headers_that_claim_half_of_the_file() {
    for mib in [1, 8] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.trace");
        let (wall, ticks) = trace(&path);
        let length = mib << 20;
        // Whole headers, one after the other. Each claims bytes up to the middle of the file, or
        // the most that is accepted.
        let mut spool = Vec::new();
        while spool.len() < length {
            let half = (length / 2).min(10 << 20) as u32;
            let frame = Frame {
                events: FRAME_EVENTS,
                runs: (3, Vec::new()),
                columns: (1 << 20, Vec::new()),
                claims: Some([16, half]),
                first: ticks,
            };
            spool.extend(frame.bytes(wall, spool.len() as u64));
        }
        append(&path, &spool);
        let begin = Instant::now();
        let ran = gpushim(
            folder.path(),
            &["report", "a.trace"],
            1024,
            Duration::from_secs(10),
        );
        println!("{mib} MiB of headers: {:?}", begin.elapsed());
        assert!(ran.text().contains("are damaged"), "{:.1000}", ran.text());
    }
}
