//! Space that the file takes on the disk, and effects of full disks and other programs on it.

use std::os::unix::fs::MetadataExt;

use super::*;
use crate::{Condition, Missed, TimelineFollower};

fn disk_bytes(writer: &Writer) -> u64 {
    std::fs::metadata(writer.path()).unwrap().blocks() * 512
}

/// Event of a block of a trace.
fn block(kind: Kind, number: u64) -> Event {
    Event {
        device: 0,
        address: number << 9,
        size: 512,
        ..Event::new(kind, Class::Device)
    }
}

#[test]
fn a_file_takes_space_as_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default()).unwrap();
    let mut follower = TimelineFollower::new(&writer, None);
    for number in 1..1000 {
        writer.record_alloc(&block(Kind::Alloc, number));
        writer.record_free(&block(Kind::Free, number));
    }
    writer.keep_ahead(16 << 20);
    follower.poll();
    let (first, all) = (disk_bytes(&writer), WriterOptions::default().file_bytes());
    assert!(first <= 1 << 20, "{first} of {all}");
    for number in 1..200_000 {
        writer.record_alloc(&block(Kind::Alloc, number));
    }
    let used = disk_bytes(&writer);
    assert!(used > 200_000 * 64 && used < all, "{used} of {all}");
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
    assert_eq!((trace.readable(), trace.lost()), (201_997, 0));
    let live = trace.live().unwrap();
    assert_eq!(live.blocks.len() as u64 + live.missed, 199_999);
    assert!(live.blocks.len() > 128_000, "{}", live.blocks.len());
}

#[test]
fn on_a_full_disk_the_ring_goes_round_in_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default()).unwrap();
    let mut follower = TimelineFollower::new(&writer, None);
    for number in 0..1500 {
        writer.record(&numbered(1, number));
    }
    writer.mapped.space.refuse();
    for number in 1500..100_000 {
        writer.record(&numbered(1, number));
        if number % 1000 == 0 {
            follower.poll();
        }
    }
    assert_eq!(follower.missed(), Missed::default());
    assert_eq!(writer.check(), Condition::Short);
    // The first page has space, and no other.
    assert_ne!(writer.intern("a text"), 0);
    assert_eq!(writer.intern(&"x".repeat(4090)), 0);
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
    let counts = (trace.recorded(), trace.readable(), trace.dropped());
    assert_eq!(counts, (100_000, 2048, 0));
    let numbers = numbers(&trace);
    assert!(numbers.ends_with(&[99_998, 99_999]) && numbers[0] == 100_000 - 2048);
}

/// Offsets of the pages of a writer's file that are in memory but have no space on the disk. On a
/// full tmpfs the access that brought them there is a fault.
fn touched_holes(writer: &Writer) -> Vec<usize> {
    let mapped = &writer.mapped;
    let mut resident = vec![0_u8; mapped.map.len().div_ceil(4096)];
    let at = mapped.map.as_ptr() as *mut _;
    // SAFETY: the range is the mapping, and the result has a byte for each page.
    let result = unsafe { libc::mincore(at, mapped.map.len(), resident.as_mut_ptr()) };
    assert_eq!(result, 0);
    let tracked = mapped.places.chunks.at as usize;
    let pages = resident
        .iter()
        .enumerate()
        .map(|(page, state)| (page * 4096, state & 1));
    let touched = pages.filter(|(at, is_resident)| *at < tracked && *is_resident == 1);
    touched
        .map(|(at, _)| at)
        .filter(|at| !mapped.space.is_present(*at))
        .collect()
}

#[test]
fn on_a_full_disk_no_page_without_space_is_accessed() {
    let dir = tempfile::tempdir().unwrap();
    for blocks in [0, 100, 3000, 20_000] {
        let path = dir.path().join(format!("{blocks}.trace"));
        let writer = Writer::create(&path, &WriterOptions::default()).unwrap();
        let mut follower = TimelineFollower::new(&writer, None);
        for number in 0..blocks {
            writer.record_alloc(&block(Kind::Alloc, number));
        }
        writer.mapped.space.refuse();
        for number in 0..30_000 {
            writer.record_alloc(&block(Kind::Alloc, number + blocks));
            if number % 1000 == 0 {
                follower.poll();
            }
        }
        for number in 0..30_000 + blocks {
            writer.stack(0, &[number, number + 7]);
            writer.intern(&number.to_string());
            writer.record_free(&block(Kind::Free, number));
        }
        assert_eq!(writer.drop_live(|_| true), (0, 0));
        follower.poll();
        assert_eq!(touched_holes(&writer), [], "after {blocks} blocks");
        let trace = Trace::open(writer.path()).unwrap();
        let sums = trace.totals().unwrap().layer(Layer::Device);
        let all = 30_000 + blocks;
        assert_eq!((sums.allocations, sums.frees), (all, all));
    }
}

#[test]
fn a_truncated_file_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for bytes in [0, 8192, 300_000] {
        let path = dir.path().join(format!("{bytes}.trace"));
        let writer = Writer::create(&path, &WriterOptions::default()).unwrap();
        let mut follower = TimelineFollower::new(&writer, None);
        let record = || {
            for number in 1..5000 {
                writer.record_alloc(&block(Kind::Alloc, number));
                writer.stack(0, &[number, 7]);
                writer.record_free(&block(Kind::Free, number));
            }
            writer.fact("a", "b");
            writer.intern("a text");
        };
        record();
        follower.poll();
        assert_eq!(writer.check(), Condition::Sound);
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(bytes))
            .unwrap();
        if bytes == 0 {
            // Detected before any thread accesses the file.
            assert_eq!(writer.check(), Condition::Truncated);
        }
        record();
        follower.poll();
        assert_eq!(writer.check(), Condition::Truncated, "{bytes}");
        record();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
    }
}

#[test]
fn a_name_taken_thousands_of_times_has_a_next_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.trace");
    std::fs::write(&path, "").unwrap();
    for number in 1..=2500 {
        std::fs::write(dir.path().join(format!("run-{number}.trace")), "").unwrap();
    }
    for number in 2501..2504 {
        let (_, created) = create::open_new(&path).unwrap();
        assert_eq!(created, dir.path().join(format!("run-{number}.trace")));
    }
}
