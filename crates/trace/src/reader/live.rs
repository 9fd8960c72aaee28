//! The live table of a file.

use super::Trace;
use super::bytes::Bytes;
use super::header::Part;
use crate::clock::Calibration;
use crate::event::Event;
use crate::layout::{PartKind, live};
use crate::live::{Seen, look};

/// Block that was live when the table was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Time of its allocation, ns since the start of the trace.
    pub ns: u64,
    /// Event of its allocation.
    pub event: Event,
}

/// Blocks that were live when the process ended or when the table was read.
///
/// ```
/// use gpushim_trace::{Class, Event, Kind, Trace, Writer, WriterOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("run.trace");
/// let writer = Writer::create(&path, &WriterOptions::default())?;
/// writer.record_alloc(&Event { address: 0x1000, size: 512, ..Event::new(Kind::Alloc, Class::Device) });
/// writer.record_alloc(&Event { address: 0x2000, size: 256, ..Event::new(Kind::Alloc, Class::Host) });
///
/// let live = Trace::open(&path)?.live().ok_or("a trace has a live table")?;
/// let bytes: u64 = live.blocks.iter().map(|block| block.event.size).sum();
/// assert_eq!((live.blocks.len(), bytes), (2, 768));
/// assert!(live.is_complete());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveTable {
    /// Live blocks, the oldest first. If the process is running, each was live at some moment of
    /// the reading.
    pub blocks: Vec<LiveBlock>,
    /// Number of blocks that were being entered.
    pub in_flight: u64,
    /// Number of blocks that found no place since the trace began, freed since or not. If it is not
    /// 0, the table may lack some blocks.
    pub missed: u64,
    /// Number of blocks that the table has room for, half of them for blocks that their owners
    /// number.
    pub capacity: u64,
    /// Damages found, each a sentence that names the place.
    pub problems: Vec<String>,
}

impl LiveTable {
    /// True if no block is missing.
    pub fn is_complete(&self) -> bool {
        self.missed == 0 && self.in_flight == 0 && self.problems.is_empty()
    }
}

impl Trace {
    /// Returns the live blocks; `None` in a file without a live table.
    pub fn live(&self) -> Option<LiveTable> {
        let part = self.parts.get(PartKind::Live)?;
        Some(read(&self.bytes, part, self.header.clock))
    }

    /// Returns the number of blocks that found no place in the live table since the trace began; 0
    /// in a file without this table.
    pub fn live_missed(&self) -> u64 {
        let part = self.parts.get(PartKind::Live);
        let missed = part.and_then(|part| self.bytes.u64(part.offset + live::MISSED as u64));
        missed.unwrap_or(0)
    }
}

/// Number of words of a group, as far as this version knows it.
const WORDS: usize = live::GROUP_BYTES / 8;

fn read(bytes: &Bytes, part: Part, clock: Calibration) -> LiveTable {
    let mut table = LiveTable::default();
    if part.stride < live::GROUP_BYTES as u64 || !part.stride.is_multiple_of(8) {
        let problem = "the live table's description makes no sense: no live blocks can be read";
        table.problems.push(problem.to_string());
        return table;
    }
    let groups = part.length.saturating_sub(live::HEAD_BYTES as u64) / part.stride;
    let first = part.offset + live::HEAD_BYTES as u64;
    let held = (bytes.len().saturating_sub(first) / part.stride).min(groups);
    if held < groups {
        table.problems.push(format!(
            "the live table is cut off: {held} of {groups} groups are there"
        ));
    }
    table.missed = bytes.u64(part.offset + live::MISSED as u64).unwrap_or(0);
    table.capacity = groups.saturating_mul(live::KEYS as u64);
    // Key, ticks, event.
    let mut found = Vec::new();
    let mut foreign: Option<(u64, u64)> = None;
    for index in 0..held {
        let at = first + index * part.stride;
        let Some((keys, entries)) = bytes
            .atomics(at, WORDS)
            .and_then(|group| group.split_at_checked(live::ENTRY_BYTES / 8))
        else {
            break;
        };
        let entries = entries.chunks_exact(live::ENTRY_BYTES / 8);
        for (key, entry) in keys.iter().take(live::KEYS).zip(entries) {
            match look(key, entry.get(1..).unwrap_or_default()) {
                Seen::Free => {}
                Seen::Writing => table.in_flight += 1,
                Seen::Block(key, words) if is_of(key, &words) => {
                    let (ticks, event) = Event::from_words(words);
                    found.push((key, ticks, event));
                }
                Seen::Block(..) => foreign = Some(foreign.map_or((at, 1), |(at, n)| (at, n + 1))),
            }
        }
    }
    if let Some((at, count)) = foreign {
        table.problems.push(format!(
            "{count} entries of the live table do not belong to their keys, the first in the group at byte {at}: left out"
        ));
    }
    // A block that was freed and allocated again during the reading may have been seen in two
    // places.
    found.sort_unstable_by_key(|(key, ticks, _)| (*key, std::cmp::Reverse(*ticks)));
    found.dedup_by_key(|(key, _, _)| *key);
    found.sort_unstable_by_key(|(key, ticks, _)| (*ticks, *key));
    let block = |(_, ticks, event)| LiveBlock {
        ns: clock.ns(ticks),
        event,
    };
    table.blocks = found.into_iter().map(block).collect();
    table
}

/// True if an entry belongs to its key: both name the same class and address.
fn is_of(key: u64, words: &[u64; 7]) -> bool {
    let [_, head, _, address, ..] = words;
    let class = head >> 8 & 0xff;
    key >> 56 == class + 1 && key & ((1 << 56) - 1) == *address
}

#[cfg(test)]
mod tests;
