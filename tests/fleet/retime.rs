//! Gives the events of a trace other times: a trace that was written in milliseconds becomes one of
//! minutes.

use std::os::unix::fs::FileExt;
use std::path::Path;

use gpushim_trace::layout::{PartKind, RECORD_BYTES, checksum, header, live};

/// Ticks of the start: any number above zero.
const START: u64 = 1_000_000_000;

/// Sets the times of the events in their order, ns since the start, and the wall clock of the
/// trace's start.
///
/// All events must be of one thread.
pub fn retime(path: &Path, wall_ns: u64, times: &[u64]) {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut head = vec![0; 4096];
    file.read_exact_at(&mut head, 0).unwrap();
    let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize;
    let u64_of =
        |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let part = |kind: PartKind| {
        let (from, count, stride) = (
            u32_at(header::PARTS_OFFSET),
            u32_at(header::PARTS_COUNT),
            u32_at(header::PARTS_STRIDE),
        );
        let mut entries = (0..count).map(|index| from + index * stride);
        let at = entries.find(|at| u32_at(*at) == kind as usize).unwrap();
        (u64_of(&head, at + 8), u64_of(&head, at + 16))
    };
    let read = |(from, bytes): (u64, u64)| {
        let mut content = vec![0; bytes as usize];
        file.read_exact_at(&mut content, from).unwrap();
        content
    };
    let ring = part(PartKind::Ring);
    let mut slots = read(ring);
    let mut before: Vec<u64> = slots
        .chunks(RECORD_BYTES)
        .filter(|slot| u64_of(slot, 0) != 0)
        .map(|slot| u64_of(slot, 8))
        .collect();
    before.sort_unstable();
    assert_eq!(before.len(), times.len(), "{}", path.display());
    let new = |ticks: u64| {
        let at = before.binary_search(&ticks).unwrap();
        (START + times[at]).to_le_bytes()
    };
    for slot in slots.chunks_mut(RECORD_BYTES) {
        if u64_of(slot, 0) != 0 {
            let ticks = new(u64_of(slot, 8));
            slot[8..16].copy_from_slice(&ticks);
        }
    }
    file.write_all_at(&slots, ring.0).unwrap();
    let table = part(PartKind::Live);
    let mut groups = read(table);
    for group in groups[live::HEAD_BYTES..].chunks_exact_mut(live::GROUP_BYTES) {
        for key in 0..live::KEYS {
            if u64_of(group, key * 8) > live::WRITING {
                let at = (1 + key) * live::ENTRY_BYTES + 8;
                let ticks = new(u64_of(group, at));
                group[at..at + 8].copy_from_slice(&ticks);
            }
        }
    }
    file.write_all_at(&groups, table.0).unwrap();
    let last = times.last().copied().unwrap_or(0) + 1;
    let mut put = |at: usize, value: u64| head[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put(header::WALL_NS, wall_ns);
    put(header::START_TICKS, START);
    put(header::START_NS, START);
    for pair in 0..2 {
        put(header::CLOCK_PAIRS + pair * 16, START + last);
        put(header::CLOCK_PAIRS + pair * 16 + 8, START + last);
    }
    // Ticks that are ns.
    head[header::CLOCK..header::CLOCK + 4].copy_from_slice(&2_u32.to_le_bytes());
    let sum = checksum(&head);
    head[header::CHECKSUM..header::CHECKSUM + 8].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&head, 0).unwrap();
}
