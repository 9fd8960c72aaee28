//! A copy of the trace of a process that runs: what a kill at one moment would have left.
//!
//! The parts of a file that is being written are of different moments, by the time that it takes to read them. Here
//! they are brought to one, the *cut*: events after it are left out of the ring, and the live table, which is read
//! just before it, is brought forward to it by the events in between. What threads have under way at the cut is in the
//! one and not in the other; the copy is looked through for such blocks, and made again from the live table on while
//! there are any and they change.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Trace;
use super::header::Part;
use crate::clock::ClockSource;
use crate::event::{Event, Kind};
use crate::layout::{self, Chunk, PartKind, RECORD_BYTES, live, totals};
use crate::live::{Seen, look};
use crate::{Error, Layer};

mod chunk;
mod spool;

use chunk::Copied;

/// What an [`Error`] of this room is about.
const COPY: &str = "copy the trace";
/// How often a copy is made again because threads had blocks under way.
const TRIES: u32 = 12;
/// How long it waits before that.
const WAIT: Duration = Duration::from_millis(3);
/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// A live block by its key: ticks, and the words of its event.
type Blocks = HashMap<u64, [u64; 7]>;

/// What a copy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Blocks that were live at the cut.
    pub live: u64,
    /// Events.
    pub events: u64,
    /// Blocks that threads had under way at the cut, so that the live table and the events differ by them.
    pub under_way: u64,
}

impl Trace {
    /// Copies the trace at a path, whose process may be running, into a file that is empty: what a kill at this moment
    /// would have left. What it has of a spool becomes the spool of a trace at the path `name`.
    ///
    /// # Errors
    /// The trace cannot be read, is of another version of the format, or the copy cannot be written.
    pub fn snapshot(path: &Path, copy: &File, name: &Path) -> Result<Snapshot, Error> {
        let trace = Trace::open(path)?;
        let other = |what| Error::new(COPY, path, what);
        let maker = Maker::new(&trace, copy).ok_or_else(|| {
            other("it is of another version of the format; use the gpushim that writes it")
        })?;
        let made = maker.make().and_then(|(made, cut)| {
            spool::copy(path, trace.header.wall_ns, cut, name)?;
            Ok(made)
        });
        made.map_err(|error| Error::io(COPY, path, "", error))
    }
}

struct Maker<'a> {
    trace: &'a Trace,
    copy: &'a File,
    clock: ClockSource,
    ring: Part,
    chunks: Part,
    live: Part,
    totals: Part,
    /// Slots of a chunk.
    each: usize,
}

/// What the events up to the cut say.
#[derive(Default)]
struct Told {
    /// The events of the time in which the live table was read, in order.
    between: Vec<(u64, Event)>,
    /// Of each block the last event: its ticks, and whether it was allocated.
    last: HashMap<u64, (u64, bool)>,
    /// Allocations and their bytes by layer and device.
    made: HashMap<(usize, usize), (u64, u64)>,
    events: u64,
    /// Some events were overwritten or given up.
    lost: bool,
}

impl<'a> Maker<'a> {
    fn new(trace: &'a Trace, copy: &'a File) -> Option<Maker<'a>> {
        let get = |kind| trace.parts.get(kind);
        let (ring, chunks) = (get(PartKind::Ring)?, get(PartKind::Chunks)?);
        let (live, totals) = (get(PartKind::Live)?, get(PartKind::Totals)?);
        let words = chunks.length / 8;
        let slots = ring.length / RECORD_BYTES as u64;
        let is_known = trace.ring.is_ours()
            && chunks.stride == 8
            && live.stride == live::GROUP_BYTES as u64
            && totals.stride == totals::STRIPE_BYTES as u64
            && words > 0
            && slots.is_multiple_of(words);
        is_known.then_some(Maker {
            trace,
            copy,
            clock: trace.header.clock_source?,
            ring,
            chunks,
            live,
            totals,
            each: (slots / words) as usize,
        })
    }

    fn make(&self) -> io::Result<(Snapshot, u64)> {
        self.copy.set_len(self.trace.bytes.len())?;
        // Before the cut: nothing in it is of a later moment.
        self.copy_timeline()?;
        self.copy_ring(u64::MAX, &mut |_, _| {})?;
        let mut before = None;
        for attempt in 1.. {
            let from = self.clock.now();
            let mut blocks = self.read_live();
            let sums = self.read_totals();
            let cut = self.clock.now();
            // What was recorded until now is published meanwhile.
            std::thread::sleep(WAIT * attempt.min(5));
            let mut told = Told::default();
            told.lost = self.copy_ring(cut, &mut |ticks, event| told.tell(from, ticks, event))?;
            told.between
                .sort_unstable_by_key(|(ticks, event)| (*ticks, makes(event)));
            for (ticks, event) in &told.between {
                follow(&mut blocks, *ticks, event);
            }
            // A table without room for all blocks says nothing of those that it lacks.
            let odd = match self.trace.live_missed() {
                0 => told.odd(&blocks),
                _ => Vec::new(),
            };
            // Blocks that went with a context have no event of their own, and stay odd.
            if !odd.is_empty() && before.as_ref() != Some(&odd) && attempt < TRIES {
                before = Some(odd);
                continue;
            }
            self.write_live(&blocks)?;
            self.write_totals(&blocks, sums, &told)?;
            // After what refers to them.
            self.copy_rest()?;
            let copied = Snapshot {
                live: blocks.len() as u64,
                events: told.events,
                under_way: odd.len() as u64,
            };
            return Ok((copied, cut));
        }
        Err(io::Error::other("it changes too fast"))
    }

    /// Copies the ring up to a cut, what is in the copy already being of an earlier one, and tells the events. Whether
    /// some that were recorded are not in it.
    fn copy_ring(&self, cut: u64, tell: &mut dyn FnMut(u64, &Event)) -> io::Result<bool> {
        let bytes = &self.trace.bytes;
        let count = self.chunks.length / 8;
        let mut words = vec![0_u8; (count * 8) as usize];
        let mut lost = false;
        let chunk_bytes = self.each * RECORD_BYTES;
        let mut old = vec![0_u8; chunk_bytes];
        for chunk in 0..count {
            let Some(word) = bytes.atomics(self.chunks.offset + chunk * 8, 1) else {
                break;
            };
            // Never used: a hole of the file, which is not to be read.
            if word.iter().all(|word| word.load(Ordering::Acquire) == 0) {
                continue;
            }
            let at = self.ring.offset + chunk * chunk_bytes as u64;
            let Some(slots) = bytes.atomics(at, chunk_bytes / 8) else {
                break;
            };
            let mut copied = Copied::look(word, slots, cut);
            self.copy.read_exact_at(&mut old, at)?;
            if copied.is_all_later() {
                // All of it came after the cut: what it took the place of was copied before.
                copied = Copied::again(&old);
            }
            let new = copied.bytes();
            if new != old {
                self.copy.write_all_at(&new, at)?;
            }
            lost |= copied.recorded() > copied.events().count() as u64;
            let word = Chunk::Closed(copied.recorded()).word();
            if let Some(place) = words
                .get_mut(chunk as usize * 8..)
                .and_then(|to| to.get_mut(..8))
            {
                place.copy_from_slice(&word.to_le_bytes());
            }
            for (ticks, event) in copied.events() {
                tell(ticks, &event);
            }
        }
        self.copy.write_all_at(&words, self.chunks.offset)?;
        // Behind the chunks, so that they are within its turns.
        if let Some(cursor) = self.trace.parts.get(PartKind::Cursor) {
            self.copy_part(cursor)?;
        }
        Ok(lost || self.trace.ring.dropped > 0)
    }

    /// The live table as it is now.
    fn read_live(&self) -> Blocks {
        let mut blocks = Blocks::new();
        let words = live::GROUP_BYTES / 8;
        let first = self.live.offset + live::HEAD_BYTES as u64;
        let groups = self.live.length.saturating_sub(live::HEAD_BYTES as u64) / self.live.stride;
        for index in 0..groups {
            let group = self
                .trace
                .bytes
                .atomics(first + index * self.live.stride, words);
            let Some((keys, entries)) = group.and_then(|group| group.split_at_checked(8)) else {
                break;
            };
            for (key, entry) in keys.iter().take(live::KEYS).zip(entries.chunks_exact(8)) {
                let seen = look(key, entry.get(1..).unwrap_or_default());
                if let Seen::Block(key, words) = seen
                    && key == key_of(&Event::from_words(words).1)
                {
                    let known = blocks.entry(key).or_insert(words);
                    if known[0] < words[0] {
                        *known = words;
                    }
                }
            }
        }
        blocks
    }

    /// Writes the live table: where in it a block is does not matter to readers.
    fn write_live(&self, blocks: &Blocks) -> io::Result<()> {
        let mut part = vec![0_u8; self.live.length as usize];
        let missed = self.trace.live_missed();
        layout::put(&mut part, live::MISSED, &missed.to_le_bytes());
        for (index, (key, words)) in blocks.iter().enumerate() {
            let (group, place) = (index / live::KEYS, index % live::KEYS);
            let at = live::HEAD_BYTES + group * live::GROUP_BYTES;
            layout::put(&mut part, at + place * 8, &key.to_le_bytes());
            let entry = at + live::ENTRY_BYTES * (1 + place) + 8;
            for (number, word) in words.iter().enumerate() {
                layout::put(&mut part, entry + number * 8, &word.to_le_bytes());
            }
        }
        self.write_part(self.live.offset, &part)
    }

    /// The sums by layer and device: allocations, their bytes, frees, their bytes.
    fn read_totals(&self) -> Vec<[u64; 4]> {
        let mut sums = vec![[0_u64; 4]; totals::LAYERS * totals::DEVICES];
        for stripe in 0..self.totals.length / self.totals.stride {
            let at = self.totals.offset + stripe * self.totals.stride + totals::ROWS_AT as u64;
            let words = self.trace.bytes.atomics(at, sums.len() * 4);
            let rows = words.unwrap_or_default().chunks_exact(4);
            for (sum, row) in sums.iter_mut().zip(rows) {
                for (sum, word) in sum.iter_mut().zip(row) {
                    *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
                }
            }
        }
        sums
    }

    /// Writes the sums, so that allocations less frees are the live blocks.
    fn write_totals(
        &self,
        blocks: &Blocks,
        mut sums: Vec<[u64; 4]>,
        told: &Told,
    ) -> io::Result<()> {
        let mut held: HashMap<(usize, usize), (u64, u64)> = HashMap::new();
        for words in blocks.values() {
            let event = Event::from_words(*words).1;
            add(&mut held, &event);
        }
        let is_complete = self.trace.live_missed() == 0;
        for (index, row) in sums.iter_mut().enumerate() {
            let place = (index / totals::DEVICES, index % totals::DEVICES);
            if !told.lost {
                // Nothing is missing: they are counted.
                (row[0], row[1]) = told.made.get(&place).copied().unwrap_or_default();
            }
            if is_complete {
                let (count, bytes) = held.get(&place).copied().unwrap_or_default();
                row[2] = row[0].saturating_sub(count);
                row[3] = row[1].saturating_sub(bytes);
            }
        }
        let mut part = vec![0_u8; self.totals.length as usize];
        let rows = sums.iter().flatten().enumerate();
        for (index, word) in rows {
            layout::put(&mut part, totals::ROWS_AT + index * 8, &word.to_le_bytes());
        }
        self.write_part(self.totals.offset, &part)
    }

    /// The timeline of one state.
    fn copy_timeline(&self) -> io::Result<()> {
        let Some(part) = self.trace.parts.get(PartKind::Timeline) else {
            return Ok(());
        };
        for _ in 0..100 {
            let before = self.trace.bytes.u64(part.offset);
            self.copy_part(part)?;
            if self.trace.bytes.u64(part.offset) == before {
                break;
            }
        }
        Ok(())
    }

    /// All that is only appended to, and the header.
    fn copy_rest(&self) -> io::Result<()> {
        for kind in [
            PartKind::Facts,
            PartKind::Strings,
            PartKind::Stacks,
            PartKind::Modules,
            PartKind::Jit,
            PartKind::Sites,
        ] {
            if let Some(part) = self.trace.parts.get(kind) {
                self.copy_part(part)?;
            }
        }
        let header = self.trace.bytes.to_vec(0, layout::HEADER_BYTES as u64);
        self.copy.write_all_at(&header, 0)
    }

    fn copy_part(&self, part: Part) -> io::Result<()> {
        let mut at = part.offset;
        let end = part.offset.saturating_add(part.length);
        while at < end {
            let piece = self.trace.bytes.to_vec(at, PIECE.min(end - at));
            if piece.is_empty() {
                break;
            }
            self.write_part(at, &piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes bytes, pages of zeros as holes: the copy has been zeros there before, or grows only.
    fn write_part(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        for (index, page) in bytes.chunks(4096).enumerate() {
            if page.iter().any(|byte| *byte != 0) {
                self.copy.write_all_at(page, at + index as u64 * 4096)?;
            }
        }
        Ok(())
    }
}

/// The key of a block in the live table, 0 for one that has none.
fn key_of(event: &Event) -> u64 {
    live::key(event.class, event.address).unwrap_or(0)
}

/// Whether an event makes a block that is in the live table, or ends one.
fn makes(event: &Event) -> Option<bool> {
    match event.kind {
        Kind::Alloc | Kind::TensorAlloc if event.result == 0 => Some(true),
        Kind::Free | Kind::TensorFree if event.result == 0 => Some(false),
        _ => None,
    }
}

/// Brings the live blocks forward by an event.
fn follow(blocks: &mut Blocks, ticks: u64, event: &Event) {
    match makes(event) {
        Some(true) if key_of(event) != 0 => {
            blocks.insert(key_of(event), event.words(ticks));
        }
        // A block that was allocated again later was read so.
        Some(false)
            if blocks
                .get(&key_of(event))
                .is_some_and(|words| words[0] <= ticks) =>
        {
            blocks.remove(&key_of(event));
        }
        _ => {}
    }
}

/// Adds a block to the sums of its layer and device.
fn add(sums: &mut HashMap<(usize, usize), (u64, u64)>, event: &Event) {
    let layer: Layer = event.class.layer();
    let device = usize::from(event.device).min(totals::DEVICES - 1);
    let sum = sums.entry((layer as usize, device)).or_default();
    *sum = (sum.0 + 1, sum.1.saturating_add(event.size));
}

impl Told {
    fn tell(&mut self, from: u64, ticks: u64, event: &Event) {
        self.events += 1;
        let Some(is_made) = makes(event) else { return };
        if ticks >= from {
            self.between.push((ticks, *event));
        }
        if is_made {
            add(&mut self.made, event);
        }
        let last = self.last.entry(key_of(event)).or_insert((ticks, is_made));
        if (ticks, is_made) >= *last {
            *last = (ticks, is_made);
        }
    }

    /// The blocks of which the events say something else than the live table, sorted.
    fn odd(&self, blocks: &Blocks) -> Vec<u64> {
        let told = self
            .last
            .iter()
            .filter(|(key, (_, is_made))| **key != 0 && *is_made != blocks.contains_key(*key));
        let mut odd: Vec<u64> = told.map(|(key, _)| *key).collect();
        if !self.lost {
            let unknown = blocks.keys().filter(|key| !self.last.contains_key(*key));
            odd.extend(unknown);
        }
        odd.sort_unstable();
        odd
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
