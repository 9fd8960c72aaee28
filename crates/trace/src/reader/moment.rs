//! Copy of the trace of a running process, as a kill at one moment would have left it.
//!
//! The parts of a file that is being written are copied at different moments. They are adjusted to
//! one moment, the *cut*: the end of reading the live table and the totals. Later events are left
//! out of the ring. The reading of the live table takes time, so the events of that time are
//! applied to it. Events overwritten before they could be copied count as lost, as in any ring that
//! has wrapped. So the counts of the copy are exact.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Trace;
use super::header::Part;
use crate::Error;
use crate::clock::ClockSource;
use crate::event::Event;
use crate::kind::Kind;
use crate::layout::{self, PartKind, RECORD_BYTES, live};
use crate::live::{Seen, look};
use crate::spool::{Budget, scan};
use crate::timeline::Ledger;

mod chunk;

use chunk::Copied;

/// Action named by the [`Error`]s of this module.
const COPY: &str = "copy the trace";
/// Time after an event's ticks within which its thread has written it, unless it was interrupted.
const PUBLISHED: Duration = Duration::from_millis(2);
/// Number of bytes copied at once.
const PIECE: u64 = 1 << 20;

/// Live blocks by their keys: the words of their events.
type Blocks = HashMap<u64, [u64; 7]>;

/// Content of a copy, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Number of blocks that were live.
    pub live: u64,
    /// Number of events in the ring.
    pub events: u64,
    /// Number of chunks of the ring with events overwritten before they could be copied. In such a
    /// chunk the last event before the gap counts as torn, the other ones of the gap as lost.
    pub overtaken: u64,
}

impl Trace {
    /// Copies the trace at a path, whose process may be running, into an empty file. The copy is as
    /// a kill at this moment would have left the trace, except the request of [`crate::control`].
    ///
    /// # Errors
    /// The trace cannot be read, has another layout than this version's, or the copy cannot be
    /// written.
    pub fn copy_moment(path: &Path, copy: &File) -> Result<Moment, Error> {
        let (trace, file, _) = Trace::map(path)?;
        let copier = Copier::new(&trace, copy).ok_or_else(|| {
            let why = "another version wrote it; use the gpushim that the process runs under";
            Error::new(COPY, path, why)
        })?;
        let copied = copier.copy().and_then(|(moment, cut)| {
            copier.copy_spool(&file, cut)?;
            Ok(moment)
        });
        copied.map_err(|error| Error::io(COPY, path, "", error))
    }
}

struct Copier<'a> {
    trace: &'a Trace,
    copy: &'a File,
    clock: ClockSource,
    ring: Part,
    chunks: Part,
    live: Part,
    /// Number of bytes of a chunk.
    chunk_bytes: u64,
}

impl<'a> Copier<'a> {
    fn new(trace: &'a Trace, copy: &'a File) -> Option<Copier<'a>> {
        let get = |kind| trace.parts.get(kind);
        let (ring, chunks) = (get(PartKind::Ring)?, get(PartKind::Chunks)?);
        let live = get(PartKind::Live)?;
        let count = chunks.length / 8;
        let is_known = trace.ring.is_ours()
            && chunks.stride == 8
            && live.stride == live::GROUP_BYTES as u64
            && count > 0
            && ring.length.is_multiple_of(count * RECORD_BYTES as u64);
        is_known.then_some(Copier {
            trace,
            copy,
            clock: trace.header.clock_source?,
            ring,
            chunks,
            live,
            chunk_bytes: ring.length / count.max(1),
        })
    }

    /// Copies all but the spool. Returns the content of the copy and the ticks of the cut.
    fn copy(&self) -> io::Result<(Moment, u64)> {
        self.copy.set_len(self.trace.bytes.len())?;
        // Before the cut, so that it includes no later event. A reader adds the events after it.
        self.copy_timeline()?;
        let from = self.clock.now();
        let mut blocks = self.read_live();
        self.copy_part(PartKind::Totals)?;
        let cut = self.clock.now();
        std::thread::sleep(PUBLISHED);
        let mut moment = Moment::default();
        let mut meanwhile = Vec::new();
        self.copy_ring(cut, &mut moment, |ticks, event| {
            if ticks >= from && makes(event).is_some() {
                meanwhile.push((ticks, *event));
            }
        })?;
        // At the same instant memory is freed before it is allocated again.
        meanwhile.sort_by_key(|(ticks, event)| (*ticks, makes(event)));
        for (ticks, event) in &meanwhile {
            follow(&mut blocks, *ticks, event);
        }
        blocks.retain(|_, words| words[0] <= cut);
        moment.live = blocks.len() as u64;
        self.write_live(&blocks)?;
        // After the events that refer to them.
        for kind in [
            PartKind::Facts,
            PartKind::Strings,
            PartKind::Stacks,
            PartKind::Modules,
            PartKind::Jit,
            PartKind::Sites,
        ] {
            self.copy_part(kind)?;
        }
        let header = self.trace.bytes.to_vec(0, layout::HEADER_BYTES as u64);
        self.copy.write_all_at(&header, 0)?;
        Ok((moment, cut))
    }

    /// Copies the frames of the spool that end by the cut. The events of later frames are in the
    /// ring, except the ones overwritten meanwhile.
    fn copy_spool(&self, file: &File, cut: u64) -> io::Result<()> {
        let header = &self.trace.header;
        let (mut budget, mut problems) = (Budget::new(), Vec::new());
        let area = header.file_bytes..file.metadata()?.len();
        let frames = scan(
            file,
            area,
            header.wall_ns,
            &mut budget,
            &mut problems,
            |_, _, _| {},
        )?;
        let mut at = header.file_bytes;
        let frames = frames.iter().filter(|span| span.header.last <= cut);
        for frame in frames.filter_map(|span| span.whole(file)) {
            self.copy.write_all_at(&frame, at)?;
            at += frame.len() as u64;
        }
        Ok(())
    }

    /// Copies the ring up to the cut, and gives its events to `tell`.
    fn copy_ring(
        &self,
        cut: u64,
        moment: &mut Moment,
        mut tell: impl FnMut(u64, &Event),
    ) -> io::Result<()> {
        let bytes = &self.trace.bytes;
        let count = self.chunks.length / 8;
        let mut words = Vec::with_capacity((count * 8) as usize);
        for index in 0..count {
            let at = self.ring.offset + index * self.chunk_bytes;
            let word = bytes.atomics(self.chunks.offset + index * 8, 1);
            let slots = bytes.atomics(at, (self.chunk_bytes / 8) as usize);
            let Some(([word], slots)) = word.zip(slots) else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            // A chunk that was never used is a hole of the file: its slots must not be read.
            if word.load(Ordering::Acquire) == 0 {
                words.extend([0; 8]);
                continue;
            }
            let copied = Copied::of(word, slots, cut);
            self.copy.write_all_at(&copied.bytes(), at)?;
            words.extend(copied.word().to_le_bytes());
            moment.overtaken += u64::from(copied.is_overtaken);
            for (ticks, event) in copied.events() {
                moment.events += 1;
                tell(ticks, &event);
            }
        }
        self.copy.write_all_at(&words, self.chunks.offset)?;
        // After the chunks: none of them is ahead of it then.
        self.copy_part(PartKind::Cursor)
    }

    /// Returns the blocks of the current live table.
    fn read_live(&self) -> Blocks {
        let mut blocks = Blocks::new();
        let first = self.live.offset + live::HEAD_BYTES as u64;
        let groups = self.live.length.saturating_sub(live::HEAD_BYTES as u64) / self.live.stride;
        for index in 0..groups {
            let at = first + index * self.live.stride;
            let group = self.trace.bytes.atomics(at, live::GROUP_BYTES / 8);
            let Some((keys, entries)) = group.and_then(|group| group.split_at_checked(8)) else {
                break;
            };
            for (key, entry) in keys.iter().take(live::KEYS).zip(entries.chunks_exact(8)) {
                let seen = look(key, entry.get(1..).unwrap_or_default());
                if let Seen::Block(key, words) = seen
                    && Some(key) == key_of(&Event::from_words(words).1)
                {
                    // A block that was freed and made again meanwhile may be seen in two places.
                    let known = blocks.entry(key).or_insert(words);
                    if known[0] < words[0] {
                        *known = words;
                    }
                }
            }
        }
        blocks
    }

    /// Writes the live table into the first groups. Readers accept a block in any group.
    fn write_live(&self, blocks: &Blocks) -> io::Result<()> {
        let missed = self.trace.live_missed();
        self.copy.write_all_at(
            &missed.to_le_bytes(),
            self.live.offset + live::MISSED as u64,
        )?;
        let blocks: Vec<_> = blocks.iter().collect();
        let groups = blocks.chunks(live::KEYS).flat_map(|blocks| {
            let mut group = [0_u64; live::GROUP_BYTES / 8];
            let (keys, entries) = group.split_at_mut(8);
            let places = keys.iter_mut().zip(entries.chunks_exact_mut(8));
            for ((to, entry), (key, words)) in places.zip(blocks) {
                *to = **key;
                entry[1..].copy_from_slice(&words[..]);
            }
            group
        });
        let groups: Vec<u8> = groups.flat_map(u64::to_le_bytes).collect();
        self.copy
            .write_all_at(&groups, self.live.offset + live::HEAD_BYTES as u64)
    }

    /// Copies the timeline in one state. If it changes faster than it can be read, the copy has
    /// none. Readers then make one from the events.
    fn copy_timeline(&self) -> io::Result<()> {
        let Some(part) = self.trace.parts.get(PartKind::Timeline) else {
            return Ok(());
        };
        let held = self.trace.bytes.available(part.offset, part.length);
        let Some((words, _)) = Ledger::resume(held) else {
            return Ok(());
        };
        let words = words.iter().map(|word| word.load(Ordering::Relaxed));
        let words: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let length = words.len().min(held.len() * 8);
        self.write_changed(part.offset, words.get(..length).unwrap_or_default())
    }

    /// Copies the content of a part, unchanged.
    fn copy_part(&self, kind: PartKind) -> io::Result<()> {
        let Some(part) = self.trace.parts.get(kind) else {
            return Ok(());
        };
        let mut at = 0;
        while at < part.length {
            let length = PIECE.min(part.length - at);
            let piece = self.trace.bytes.to_vec(part.offset + at, length);
            self.write_changed(part.offset + at, &piece)?;
            at += length;
        }
        Ok(())
    }

    /// Writes the pages that differ from the copy's, so that holes stay holes.
    fn write_changed(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut old = vec![0; bytes.len()];
        self.copy.read_exact_at(&mut old, at)?;
        let pages = bytes.chunks(4096).zip(old.chunks(4096)).enumerate();
        for (index, (new, _)) in pages.filter(|(_, (new, old))| new != old) {
            self.copy.write_all_at(new, at + index as u64 * 4096)?;
        }
        Ok(())
    }
}

/// Returns the key of a block in the live table.
fn key_of(event: &Event) -> Option<u64> {
    live::key(event.class, event.address)
}

/// True if an event makes a block of the live table, false if it ends one; `None` for other events.
fn makes(event: &Event) -> Option<bool> {
    match event.kind {
        Kind::Alloc | Kind::TensorAlloc if event.result == 0 => Some(true),
        Kind::Free | Kind::TensorFree if event.result == 0 => Some(false),
        _ => None,
    }
}

/// Applies an event to the live blocks, which may be of a later moment than the event.
fn follow(blocks: &mut Blocks, ticks: u64, event: &Event) {
    let Some(key) = key_of(event) else { return };
    let is_newer = blocks.get(&key).is_none_or(|words| words[0] <= ticks);
    match makes(event).filter(|_| is_newer) {
        Some(true) => drop(blocks.insert(key, event.words(ticks))),
        Some(false) => drop(blocks.remove(&key)),
        None => {}
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
