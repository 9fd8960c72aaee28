//! The writer: one file per process, complete at every moment without a flush or an exit handler.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use parking_lot::Mutex;

use super::clock::{self, ClockSource, Pair};
use super::event::Event;
use super::layout::{self, PartKind, counter, cursor, facts, field, header, part};
use super::process;
use super::ring::{Ring, Slot};
use super::timeline;

mod create;
mod thread;

#[cfg(feature = "spool")]
pub(in crate::trace) use create::file_size_limit;

/// How to create a trace.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Bytes of the event ring, rounded down to a power of two and at least [`WriterOptions::MIN_BYTES`].
    /// The file is larger, see [`WriterOptions::file_bytes`].
    pub bytes: u64,
    /// The rank of the process in its job, if it has one.
    pub rank: Option<u32>,
    /// Names of the counters, for [`Writer::count`] and [`Writer::set`] by their index; at most 64.
    pub counters: &'static [&'static str],
}

impl WriterOptions {
    /// The smallest ring: one page.
    pub const MIN_BYTES: u64 = 4096;
    /// The largest ring, 1 TiB.
    pub const MAX_BYTES: u64 = 1 << 40;

    /// Bytes of the file: about 2 MiB and 1/128 more than the ring, for a ring of 256 KiB and more.
    pub fn file_bytes(&self) -> u64 {
        let ring = self.ring_bytes();
        ring_at(ring) + ring
    }

    fn ring_bytes(&self) -> u64 {
        let bytes = self
            .bytes
            .clamp(WriterOptions::MIN_BYTES, WriterOptions::MAX_BYTES);
        1 << bytes.ilog2()
    }
}

impl Default for WriterOptions {
    /// A ring of 64 MiB, a million events.
    fn default() -> WriterOptions {
        WriterOptions {
            bytes: 64 << 20,
            rank: None,
            counters: &[],
        }
    }
}

const COUNTERS_AT: u64 = layout::HEADER_BYTES as u64;
const COUNTERS_BYTES: u64 = (counter::BYTES * counter::COUNT) as u64;
const FACTS_AT: u64 = COUNTERS_AT + COUNTERS_BYTES;
const CURSOR_AT: u64 = FACTS_AT + facts::BYTES as u64;
const CHUNKS_AT: u64 = CURSOR_AT + cursor::BYTES as u64;

/// The number of chunks of a ring of this many bytes.
fn chunks(ring_bytes: u64) -> u64 {
    let slots = ring_bytes as usize / layout::RECORD_BYTES;
    (slots / layout::chunk_slots(slots)) as u64
}

/// Where the timeline begins: after the words of the chunks, on a page.
fn timeline_at(ring_bytes: u64) -> u64 {
    CHUNKS_AT + (chunks(ring_bytes) * 8).next_multiple_of(4096)
}

/// Where a ring of this many bytes begins, on a page.
fn ring_at(ring_bytes: u64) -> u64 {
    timeline_at(ring_bytes) + (timeline::BYTES as u64).next_multiple_of(4096)
}

/// A trace being written. Shared by all threads; dropping it leaves the file as it is.
#[derive(Debug)]
pub struct Writer {
    /// Behind an `Arc` so that a thread that ends can tell whether its chunk still exists.
    mapped: Arc<Mapped>,
    clock: ClockSource,
    path: PathBuf,
    /// Bytes of the ring known to be present.
    present: AtomicU64,
    /// Serialises facts and calibrations, which are rare.
    rare: Mutex<()>,
}

/// The file in memory, and the ring within it.
#[derive(Debug)]
pub(in crate::trace) struct Mapped {
    // Before `map`, so that it is dropped first.
    ring: Ring<'static, AtomicU64>,
    map: MmapRaw,
    /// The process that writes it; a forked child has the mapping too.
    process: u32,
}

impl Mapped {
    /// The ring.
    pub(in crate::trace) fn ring(&self) -> &Ring<'static, AtomicU64> {
        &self.ring
    }

    /// Whether this process writes the file; a forked child does not.
    pub(in crate::trace) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// The words of the timeline.
    pub(in crate::trace) fn timeline(&self) -> &[AtomicU64] {
        let ring_bytes = self.ring.capacity() * layout::RECORD_BYTES;
        let at = timeline_at(ring_bytes as u64) as usize;
        if at + timeline::BYTES > self.map.len() {
            return &[];
        }
        // SAFETY: the words lie within the mapping and are aligned (it starts on a page, the offset is
        // a multiple of 8), live as long as `self`, and are only ever accessed atomically.
        unsafe {
            let first = self.map.as_ptr().add(at).cast::<AtomicU64>();
            std::slice::from_raw_parts(first, timeline::BYTES / 8)
        }
    }
}

impl Writer {
    /// The mapping and the clock of the records, for who follows the ring.
    pub(in crate::trace) fn followed(&self) -> (Arc<Mapped>, ClockSource) {
        (Arc::clone(&self.mapped), self.clock)
    }

    /// Wall clock at the start, ns since 1970.
    #[cfg(feature = "spool")]
    pub(in crate::trace) fn wall_ns(&self) -> u64 {
        let wall = self.word(header::WALL_NS);
        wall.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Ticks at the start.
    pub(in crate::trace) fn start_ticks(&self) -> u64 {
        let start = self.word(header::START_TICKS);
        start.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// About how many ticks a millisecond has.
    pub(in crate::trace) fn ticks_per_ms(&self) -> u64 {
        let _held = self.rare.lock();
        let get = |at| self.word(at).map_or(0, |word| word.load(Ordering::Relaxed));
        let pair = header::CLOCK_PAIRS + (get(header::CLOCK_CURRENT) & 1) as usize * 16;
        let ticks = get(pair).saturating_sub(get(header::START_TICKS));
        let us = get(pair + 8).saturating_sub(get(header::START_NS)) / 1000;
        (ticks / us.max(1)).saturating_mul(1000).max(1)
    }

    /// Creates a trace file and maps it.
    ///
    /// An existing file is left alone: the new one gets `-1`, `-2`, … before its extension. All
    /// space is reserved now, so that a full disk is an error here and never a fault later.
    ///
    /// # Errors
    /// What the file system said. Nothing is left behind then.
    pub fn create(path: &Path, options: &WriterOptions) -> io::Result<Writer> {
        let clock = ClockSource::detect();
        let start = clock.pair();
        let wall_ns = clock::wall_ns();
        let ring_bytes = options.ring_bytes();
        let (file, path) = create::open_new(path)?;
        let map = create::reserve(&file, options.file_bytes())
            .and_then(|()| map(&file, options.file_bytes()));
        let map = map.inspect_err(|_| create::remove(&path))?;
        let ring = ring(&map, ring_bytes)
            .ok_or_else(|| io::Error::other("the mapping does not fit the ring"))
            .inspect_err(|_| create::remove(&path))?;
        let writer = Writer {
            mapped: Arc::new(Mapped {
                ring,
                map,
                process: std::process::id(),
            }),
            clock,
            path,
            present: AtomicU64::new(0),
            rare: Mutex::new(()),
        };
        writer.write_header(start, wall_ns, ring_bytes);
        writer.name_counters(options.counters);
        for (key, value) in process::facts(wall_ns, options.rank) {
            writer.fact(key, &value);
        }
        writer.prefault(FIRST_PREFAULT);
        // A rate for processes that die before the first refresh: 0.2 ms apart, good to about 0.1 %.
        while clock::monotonic_ns() < start.ns.saturating_add(200_000) {
            std::hint::spin_loop();
        }
        writer.calibrate();
        fence(Ordering::Release);
        writer.put(0, &layout::MAGIC);
        Ok(writer)
    }

    /// Records one event, with the time of now. No lock, no system call, no heap, but for what a
    /// thread's first event costs. Not for signal handlers.
    #[inline(always)]
    pub fn record(&self, event: &Event) {
        // Packed here, where the caller has the fields in registers: stored one by one and read again
        // in larger pieces they would stall.
        thread::record(&self.mapped, self.clock, event.words(0));
    }

    /// Adds a fact about the process: a line of text that is complete as soon as this returns.
    ///
    /// The same key may come many times. A value beyond 8 KiB is shortened; a fact that no longer
    /// fits is counted and dropped. Takes a lock and makes copies: not for hot paths.
    pub fn fact(&self, key: &str, value: &str) {
        let line = fact_line(key, value);
        let _held = self.rare.lock();
        let at = FACTS_AT as usize;
        let (Some(committed), Some(cut)) =
            (self.word(at + facts::COMMITTED), self.word(at + facts::CUT))
        else {
            return;
        };
        let used = committed.load(Ordering::Relaxed);
        let free =
            (facts::BYTES - facts::TEXT) as u64 - used.min((facts::BYTES - facts::TEXT) as u64);
        if line.len() as u64 > free {
            cut.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.put(at + facts::TEXT + used as usize, line.as_bytes());
        committed.store(used + line.len() as u64, Ordering::Release);
    }

    /// Adds to a counter, by its index in [`WriterOptions::counters`]. No lock, no system call.
    #[inline]
    pub fn count(&self, counter: usize, n: u64) {
        if let Some(word) = self.counter(counter) {
            word.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Sets a counter, by its index in [`WriterOptions::counters`]. No lock, no system call.
    #[inline]
    pub fn set(&self, counter: usize, value: u64) {
        if let Some(word) = self.counter(counter) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Where the file is: absolute, with the suffix that it got if the name was taken.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The records' clock now, ticks.
    #[inline]
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Refreshes the pair from which ticks become ns. Once a second is plenty.
    pub fn calibrate(&self) {
        let _held = self.rare.lock();
        let pair = self.clock.pair();
        let Some(current) = self.word(header::CLOCK_CURRENT) else {
            return;
        };
        let next = current.load(Ordering::Relaxed) & 1 ^ 1;
        let at = header::CLOCK_PAIRS + next as usize * 16;
        if let (Some(ticks), Some(ns)) = (self.word(at), self.word(at + 8)) {
            ticks.store(pair.ticks, Ordering::Relaxed);
            ns.store(pair.ns, Ordering::Relaxed);
            current.store(next, Ordering::Release);
        }
    }

    /// Makes the pages of the next `ahead` bytes of the ring present, off the hot path, so that
    /// recording does not fault. Where the kernel cannot (before Linux 5.14), nothing happens. Returns
    /// whether that was anything new, and there is more to come.
    pub fn prefault(&self, ahead: u64) -> bool {
        let ring = &self.mapped.ring;
        let ring_bytes = (ring.capacity() * layout::RECORD_BYTES) as u64;
        let used = ring.reached().saturating_mul(layout::RECORD_BYTES as u64);
        let wanted = used
            .saturating_add(ahead)
            .min(ring_bytes)
            .next_multiple_of(PAGE)
            .min(ring_bytes);
        let from = self.present.fetch_max(wanted, Ordering::Relaxed);
        if from < wanted {
            let (at, length) = (
                (ring_at(ring_bytes) + from) as usize,
                (wanted - from) as usize,
            );
            // A failure means slower first writes, nothing else.
            let _ = self
                .mapped
                .map
                .advise_range(memmap2::Advice::PopulateWrite, at, length);
        }
        from < wanted && wanted < ring_bytes
    }

    fn write_header(&self, start: Pair, wall_ns: u64, ring_bytes: u64) {
        let mut page = vec![0_u8; layout::HEADER_BYTES];
        let ring_at = ring_at(ring_bytes);
        let parts = [
            (
                PartKind::Counters,
                COUNTERS_AT,
                COUNTERS_BYTES,
                counter::BYTES,
            ),
            (PartKind::Facts, FACTS_AT, facts::BYTES as u64, 1),
            (
                PartKind::Cursor,
                CURSOR_AT,
                cursor::BYTES as u64,
                cursor::BYTES,
            ),
            (PartKind::Chunks, CHUNKS_AT, chunks(ring_bytes) * 8, 8),
            (PartKind::Ring, ring_at, ring_bytes, layout::RECORD_BYTES),
            (
                PartKind::Timeline,
                timeline_at(ring_bytes),
                timeline::BYTES as u64,
                8,
            ),
        ];
        for (at, value) in [
            (header::MAJOR, layout::MAJOR),
            (header::MINOR, layout::MINOR),
            (header::BYTES, layout::HEADER_BYTES as u32),
            (header::PARTS_OFFSET, header::PARTS_AT as u32),
            (header::PARTS_COUNT, parts.len() as u32),
            (header::PARTS_STRIDE, part::BYTES as u32),
            (header::FIELDS_OFFSET, header::FIELDS_AT as u32),
            (header::FIELDS_COUNT, layout::FIELDS.len() as u32),
            (header::FIELDS_STRIDE, field::BYTES as u32),
            (header::CLOCK, self.clock as u32),
        ] {
            layout::put(&mut page, at, &value.to_le_bytes());
        }
        for (at, value) in [
            (header::FILE_BYTES, ring_at + ring_bytes),
            (header::WALL_NS, wall_ns),
            (header::START_TICKS, start.ticks),
            (header::START_NS, start.ns),
        ] {
            layout::put(&mut page, at, &value.to_le_bytes());
        }
        for (index, (kind, offset, length, stride)) in parts.into_iter().enumerate() {
            let at = header::PARTS_AT + index * part::BYTES;
            layout::put(&mut page, at + part::KIND, &(kind as u32).to_le_bytes());
            layout::put(&mut page, at + part::OFFSET, &offset.to_le_bytes());
            layout::put(&mut page, at + part::LENGTH, &length.to_le_bytes());
            layout::put(&mut page, at + part::STRIDE, &(stride as u64).to_le_bytes());
        }
        for (index, entry) in layout::FIELDS.iter().enumerate() {
            let at = header::FIELDS_AT + index * field::BYTES;
            layout::put(&mut page, at + field::NAME, entry.name.as_bytes());
            layout::put(&mut page, at + field::OFFSET, &entry.offset.to_le_bytes());
            layout::put(&mut page, at + field::WIDTH, &entry.width.to_le_bytes());
        }
        let sum = layout::checksum(&page);
        layout::put(&mut page, header::CHECKSUM, &sum.to_le_bytes());
        self.put(0, &page);
    }

    fn name_counters(&self, names: &[&str]) {
        for (index, name) in names.iter().take(counter::COUNT).enumerate() {
            let at = COUNTERS_AT as usize + index * counter::BYTES + counter::NAME;
            let name = cut_to(name, counter::NAME_BYTES);
            self.put(at, name.as_bytes());
        }
    }

    #[inline]
    fn counter(&self, index: usize) -> Option<&AtomicU64> {
        if index >= counter::COUNT {
            return None;
        }
        self.word(COUNTERS_AT as usize + index * counter::BYTES + counter::VALUE)
    }

    /// The aligned word at an offset of the file.
    #[inline]
    fn word(&self, at: usize) -> Option<&AtomicU64> {
        if !at.is_multiple_of(8) || at.checked_add(8)? > self.mapped.map.len() {
            return None;
        }
        // SAFETY: the word lies within the mapping, is aligned (the mapping starts on a page), and
        // is only ever accessed atomically once the header is written.
        Some(unsafe { &*self.mapped.map.as_ptr().add(at).cast::<AtomicU64>() })
    }

    /// Copies bytes into the file; out of range it copies nothing. For regions that no other
    /// thread writes at the same time.
    fn put(&self, at: usize, bytes: &[u8]) {
        if at
            .checked_add(bytes.len())
            .is_none_or(|end| end > self.mapped.map.len())
        {
            return;
        }
        // SAFETY: the destination lies within the mapping, which this struct owns and to which no
        // reference other than to atomics exists; callers do not write the same region at once.
        unsafe {
            self.mapped
                .map
                .as_mut_ptr()
                .add(at)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
    }
}

/// Ring bytes made present at creation: the first 4,096 events.
const FIRST_PREFAULT: u64 = 256 << 10;
/// The granularity of [`Writer::prefault`], a multiple of the page size.
const PAGE: u64 = 64 << 10;

fn map(file: &File, bytes: u64) -> io::Result<MmapRaw> {
    let bytes = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    MmapOptions::new().len(bytes).map_raw(file)
}

/// The ring within a mapping.
fn ring(map: &MmapRaw, ring_bytes: u64) -> Option<Ring<'static, AtomicU64>> {
    let (cursor_at, chunks_at) = (CURSOR_AT as usize, CHUNKS_AT as usize);
    let ring_at = usize::try_from(ring_at(ring_bytes)).ok()?;
    let slots = usize::try_from(ring_bytes).ok()? / layout::RECORD_BYTES;
    let chunks = chunks(ring_bytes) as usize;
    if chunks_at + chunks * 8 > ring_at || ring_at + slots * layout::RECORD_BYTES > map.len() {
        return None;
    }
    // SAFETY: the words and all slots lie within the mapping and are aligned (the mapping starts on
    // a page, the offsets are multiples of 64). The mapping lives in the same `Mapped` as the ring,
    // is dropped after it, and the ring never leaves the `Mapped`, so 'static is not outlived.
    unsafe {
        let base = map.as_ptr();
        Ring::new(
            &*base.add(cursor_at + cursor::NEXT).cast::<AtomicU64>(),
            &*base.add(cursor_at + cursor::DROPPED).cast::<AtomicU64>(),
            std::slice::from_raw_parts(base.add(chunks_at).cast::<AtomicU64>(), chunks),
            std::slice::from_raw_parts(base.add(ring_at).cast::<Slot<AtomicU64>>(), slots),
        )
    }
}

/// A fact as it stands in the file.
fn fact_line(key: &str, value: &str) -> String {
    let mut line = String::with_capacity(key.len() + value.len().min(facts::VALUE_MAX) + 8);
    escape_into(&mut line, cut_to(key, 256));
    line.push('\t');
    let short = cut_to(value, facts::VALUE_MAX);
    escape_into(&mut line, short);
    if short.len() < value.len() {
        line.push('…');
    }
    line.push('\n');
    line
}

fn escape_into(line: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '\\' => line.push_str(r"\\"),
            '\t' => line.push_str(r"\t"),
            '\n' => line.push_str(r"\n"),
            other => line.push(other),
        }
    }
}

/// The start of a text, at most this many bytes, whole characters.
fn cut_to(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests;
