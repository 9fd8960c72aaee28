//! The writer: one file per process, complete at every moment without a flush or an exit handler.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::MmapRaw;
use parking_lot::Mutex;

use super::clock::{self, ClockSource};
use super::control::Panel;
use super::error::Error;
use super::event::{Class, Event, Layer};
use super::layout::live::key;
use super::layout::{self, cursor, facts, header};
use super::live::{Live, Numbers, Removed};
use super::process;
use super::ring::Ring;
use super::space::{Room, Space};
use super::totals::Tally;

mod create;
mod fact;
mod first_page;
mod mapped;
mod options;
mod places;
mod sums;
mod tables;
mod thread;

pub(crate) use create::file_size_limit;
pub(crate) use fact::fact_line;
pub use options::WriterOptions;
use places::Places;
use tables::Tables;

const FACTS_AT: u64 = layout::HEADER_BYTES as u64;
const CURSOR_AT: u64 = FACTS_AT + facts::BYTES as u64;
const PARTS_AT: u64 = CURSOR_AT + cursor::BYTES as u64;

/// The number of chunks of a ring of this many bytes.
fn chunks(ring_bytes: u64) -> u64 {
    let slots = ring_bytes as usize / layout::RECORD_BYTES;
    (slots / layout::chunk_slots(slots)) as u64
}

/// A trace being written. Shared by all threads; dropping it leaves the file as it is.
///
/// ```
/// use gpushim_trace::{Trace, Writer, WriterOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("run.trace");
/// let options = WriterOptions {
///     bytes: 1 << 20,
///     ..WriterOptions::default()
/// };
/// let writer = Writer::create(&path, &options)?;
/// writer.fact("framework", "PyTorch");
///
/// let trace = Trace::open(writer.path())?;
/// assert_eq!(trace.fact("framework").as_deref(), Some("PyTorch"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Writer {
    /// Behind an `Arc` so that a thread that ends can tell whether its chunk still exists.
    mapped: Arc<Mapped>,
    clock: ClockSource,
    path: PathBuf,
    /// Serialises facts and calibrations, which are rare.
    rare: Mutex<()>,
}

/// The file in memory, and the parts of it that threads write at the same time.
#[derive(Debug)]
pub(crate) struct Mapped {
    // Before `map`, so that it is dropped first.
    ring: Ring<'static, AtomicU64>,
    tables: Tables,
    live: Live<'static, AtomicU64>,
    tally: Tally<'static, AtomicU64>,
    places: Places,
    space: Arc<Space>,
    map: MmapRaw,
    /// The process that writes it; a forked child has the mapping too.
    process: u32,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.space.close();
    }
}

impl Mapped {
    /// Whether the file was truncated: nothing is kept any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.space.is_lost()
    }

    /// The room of the timeline.
    pub(crate) fn timeline_room(&self) -> Room {
        Room::of(&self.space, self.places.timeline.at)
    }

    /// The ring.
    pub(crate) fn ring(&self) -> &Ring<'static, AtomicU64> {
        &self.ring
    }

    /// The words of the control part.
    fn control(&self) -> &[AtomicU64] {
        // SAFETY: the slice does not outlive `self`, which holds the mapping, and the part is accessed
        // atomically only.
        unsafe { self.places.control.words(&self.map) }.unwrap_or_default()
    }

    /// Whether this process writes the file; a forked child does not.
    pub(crate) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// The words of the timeline.
    pub(crate) fn timeline(&self) -> &[AtomicU64] {
        // SAFETY: the slice does not outlive `self`, which holds the mapping, and the part is accessed
        // atomically only.
        unsafe { self.places.timeline.words(&self.map) }.unwrap_or_default()
    }
}

impl Writer {
    /// The mapping and the clock of the records, for a follower of the ring.
    pub(crate) fn followed(&self) -> (Arc<Mapped>, ClockSource) {
        (Arc::clone(&self.mapped), self.clock)
    }

    /// Wall clock at the start, ns since 1970.
    pub(crate) fn wall_ns(&self) -> u64 {
        let wall = self.word(header::WALL_NS);
        wall.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Ticks at the start.
    pub(crate) fn start_ticks(&self) -> u64 {
        let start = self.word(header::START_TICKS);
        start.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// About how many ticks a millisecond has.
    pub(crate) fn ticks_per_ms(&self) -> u64 {
        let _held = self.rare.lock();
        let get = |at| self.word(at).map_or(0, |word| word.load(Ordering::Relaxed));
        let pair = header::CLOCK_PAIRS + (get(header::CLOCK_CURRENT) & 1) as usize * 16;
        let ticks = get(pair).saturating_sub(get(header::START_TICKS));
        let us = get(pair + 8).saturating_sub(get(header::START_NS)) / 1000;
        (ticks / us.max(1)).saturating_mul(1000).max(1)
    }

    /// Creates a trace file and maps it.
    ///
    /// An existing file is left alone: the new one gets `-1`, `-2`, … before its extension. The file has its
    /// full length, but takes space on the disk only as it is used, before each use: a full disk loses events and
    /// counts them, and is never a fault. No descriptor is kept.
    ///
    /// # Errors
    /// What the file system said, or that there is not enough memory. Nothing is left behind then.
    pub fn create(path: &Path, options: &WriterOptions) -> Result<Writer, Error> {
        let name = path;
        let failed = |error| Error::io("create the trace", name, "", error);
        let clock = ClockSource::detect();
        let start = clock.pair();
        let wall_ns = clock::wall_ns();
        let (file, path) = create::open_new(path).map_err(failed)?;
        let mapped = Mapped::create(&file, &path, options);
        let mapped = mapped
            .inspect_err(|_| create::remove(&path))
            .map_err(failed)?;
        drop(file);
        let writer = Writer {
            mapped: Arc::new(mapped),
            clock,
            path,
            rare: Mutex::new(()),
        };
        writer.write_header(start, wall_ns);
        for (key, value) in process::facts(wall_ns, options.rank, options.facts) {
            writer.fact(key, &value);
        }
        // A rate for processes that die before the first refresh, good to about 0.1 %: each pair is of some 30 ns.
        while clock::monotonic_ns() < start.ns.saturating_add(50_000) {
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

    /// Records an event that made a block, enters the block into the live table and adds it to the totals.
    ///
    /// In this order: live table, ring, totals; a kill in between leaves them apart by this one block. All bear the
    /// same time. Costs as [`Writer::record`]. The caller must ensure that a block, which is an address and a class, is
    /// recorded as allocated, then freed, then allocated again, each once and before the other: as it is where one lock
    /// hands blocks out and takes them back.
    #[inline(always)]
    pub fn record_alloc(&self, event: &Event) {
        let block = (key(event.class, event.address), place(event));
        thread::record_alloc(&self.mapped, self.clock, event.words(0), block);
    }

    /// As [`Writer::record_alloc`], for a block that its owner numbers, in memory whose last free has the ticks of `after`
    /// or earlier ones, as [`Writer::record_numbered_free`] gave them. Cheaper: the block has a place of its own in the live
    /// table, and the clock need not wait for what the thread has under way.
    ///
    /// A number must stand for one block at a time, from its allocation to its free; `u32::MAX` stands for none.
    #[inline(always)]
    pub fn record_numbered_alloc(
        &self,
        event: &Event,
        (numbers, number): (&Numbers, u32),
        after: u64,
    ) {
        let block = (key(event.class, event.address), place(event));
        let number = (numbers, number);
        thread::record_numbered_alloc(
            &self.mapped,
            self.clock,
            event.words(0),
            after,
            number,
            block,
        );
    }

    /// Records an event that ended a block, takes the block out of the live table and adds it to the
    /// totals, in this order: live table, ring, totals. Returns what the table knew of it; `None` if it
    /// was not there. The totals then have the size that the event says.
    ///
    /// ```
    /// use gpushim_trace::{Class, Event, Kind, Layer, Trace, Writer, WriterOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("run.trace");
    /// let writer = Writer::create(&path, &WriterOptions::default())?;
    /// let block = Event { device: 0, address: 0x1000, size: 512, ..Event::new(Kind::Alloc, Class::Device) };
    /// writer.record_alloc(&block);
    /// let removed = writer.record_free(&Event { kind: Kind::Free, ..block });
    /// assert_eq!(removed.map(|block| block.size), Some(512));
    ///
    /// let totals = Trace::open(&path)?.totals().ok_or("a trace has totals")?;
    /// let sums = totals.layer(Layer::Device);
    /// assert_eq!((sums.allocations, sums.frees, sums.live_bytes()), (1, 1, 0));
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn record_free(&self, event: &Event) -> Option<Removed> {
        let block = (key(event.class, event.address), place(event));
        thread::record_free(&self.mapped, self.clock, event.words(0), block)
    }

    /// As [`Writer::record_free`], for a block that its owner numbers, however it was recorded; returns the event's ticks.
    #[inline(always)]
    pub fn record_numbered_free(&self, event: &Event, (numbers, number): (&Numbers, u32)) -> u64 {
        let block = (key(event.class, event.address), place(event));
        let number = (numbers, number);
        thread::record_numbered_free(&self.mapped, self.clock, event.words(0), number, block)
    }

    /// Takes a block out of the live table before it ends, where from then on its address may be another's.
    /// Its event follows by [`Writer::record_left`], or [`Writer::put_live`] puts it back.
    pub fn take_live(&self, class: Class, address: u64) -> Option<Removed> {
        let live = &self.mapped.live;
        live.remove(live.spot(key(class, address)))
    }

    /// As [`Writer::take_live`], of a block that its owner numbers.
    pub fn take_numbered(
        &self,
        class: Class,
        address: u64,
        (numbers, number): (&Numbers, u32),
    ) -> Option<Removed> {
        let own = self.mapped.live.known_place(numbers, number);
        own.zip(key(class, address))
            .and_then(|(own, key)| own.take(key))
            .or_else(|| self.take_live(class, address))
    }

    /// Enters a block into the live table that [`Writer::take_live`] took out, given what made it; as of now.
    pub fn put_live(&self, event: &Event) {
        let live = &self.mapped.live;
        let spot = live.spot(key(event.class, event.address));
        live.insert(spot, &event.words(self.clock.now()));
    }

    /// Records an event that ended a block that [`Writer::take_live`] took out, and adds it to the totals.
    #[inline]
    pub fn record_left(&self, event: &Event) {
        thread::record_left(&self.mapped, self.clock, event.words(0), place(event));
    }

    /// Takes blocks out of the live table that went without a free of their own, as with their context,
    /// and adds them to the totals as freed: those that are wanted, given the events that made them. The
    /// event that tells of it is the caller's to record. Returns how many they were, and their bytes.
    ///
    /// Looks at the whole table, a millisecond or so. Other threads may allocate and free meanwhile, but not
    /// free a block that is wanted.
    pub fn drop_live(&self, wanted: impl FnMut(&Event) -> bool) -> (u64, u64) {
        thread::drop_live(&self.mapped, wanted)
    }

    /// Gives each live block, by the event that made it, and perhaps some that come and go meanwhile.
    /// Not for hot paths: it reads the whole table.
    pub fn each_live(&self, see: impl FnMut(&Event)) {
        self.mapped.live.each(see);
    }

    /// Whether the live table had no room for some blocks: it is then no proof that a block was not recorded.
    pub fn has_missed_blocks(&self) -> bool {
        let missed = self.word(self.mapped.places.live.at as usize + layout::live::MISSED);
        missed.is_some_and(|missed| missed.load(Ordering::Relaxed) > 0)
    }

    /// Bytes recorded as allocated and not as freed, of a layer by device; the last stands for all others.
    pub fn live_bytes(&self, layer: Layer) -> [u64; layout::totals::DEVICES] {
        self.mapped.tally.live_bytes(layer)
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

    /// What another process asks of this one. To be looked at now and then, by one thread.
    pub fn control(&self) -> Panel<'_> {
        Panel::new(self.mapped.control())
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

    /// Takes space for the next `ahead` bytes of the ring and makes their pages present, off the hot path, so that
    /// recording neither faults nor calls the system. Returns whether that was anything new, and there is more to come.
    pub fn prefault(&self, ahead: u64) -> bool {
        let ring = &self.mapped.ring;
        let next = ahead / layout::RECORD_BYTES as u64;
        let wanted = usize::try_from(ring.reached().saturating_add(next)).unwrap_or(usize::MAX);
        let wanted = wanted.min(ring.capacity());
        let before = ring.ready();
        ring.reserve(wanted) && ring.ready() > before && wanted < ring.capacity()
    }

    /// As [`Writer::prefault`], for as many bytes as the ring has used so far, at least 256 KiB and at most `most`: a
    /// short run leaves a small file.
    pub fn keep_ahead(&self, most: u64) -> bool {
        self.mapped.live.prepare();
        let used = self.mapped.ring.reached();
        let used = used.saturating_mul(layout::RECORD_BYTES as u64);
        self.prefault(used.max(LEAST_AHEAD).min(most))
    }

    /// Looks after the file, each time that a background thread comes by: asks a disk that was full again, and sees
    /// whether the file was truncated before a thread comes upon that. What became of the file so far.
    pub fn check(&self) -> Condition {
        self.mapped.space.retry();
        if self.mapped.space.is_lost() {
            Condition::Truncated
        } else if self.mapped.space.was_full() {
            Condition::Short
        } else {
            Condition::Sound
        }
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

/// What [`Writer::keep_ahead`] keeps at least.
const LEAST_AHEAD: u64 = 256 << 10;

/// What became of a trace's file, see [`Writer::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// All is well.
    Sound,
    /// The disk had no more space at least once: fewer events are kept, and other things may be missing, as counted.
    Short,
    /// Another program truncated the file: nothing is kept from then on.
    Truncated,
}

/// Where the totals have what an event is about.
#[inline(always)]
fn place(event: &Event) -> (Layer, u8) {
    (event.class.layer(), event.device)
}

#[cfg(test)]
mod tests;
