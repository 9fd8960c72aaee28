//! The writer: one file per process, complete at every moment without a flush or an exit handler.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use gpushim_descriptors::Identity;
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

/// Returns the number of chunks of a ring of this many bytes.
fn chunks(ring_bytes: u64) -> u64 {
    let slots = ring_bytes as usize / layout::RECORD_BYTES;
    (slots / layout::chunk_slots(slots)) as u64
}

/// Trace being written, shared by all threads. Dropping it leaves the file unchanged.
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
    /// In an `Arc`, so that a thread that ends can tell if its chunk still exists.
    mapped: Arc<Mapped>,
    clock: ClockSource,
    path: PathBuf,
    /// Lock for facts and calibrations, which are rare.
    rare: Mutex<()>,
}

/// Mapped file, and the parts of it that threads write concurrently.
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
    /// Id of the process that writes the file; a forked child has the mapping too.
    process: u32,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.space.close();
    }
}

impl Mapped {
    /// True if the file was truncated: nothing more is kept.
    pub(crate) fn is_lost(&self) -> bool {
        self.space.is_lost()
    }

    /// Returns the room of the timeline.
    pub(crate) fn timeline_room(&self) -> Room {
        Room::of(&self.space, self.places.timeline.at)
    }

    pub(crate) fn ring(&self) -> &Ring<'static, AtomicU64> {
        &self.ring
    }

    /// Returns the words of the control part.
    fn control(&self) -> &[AtomicU64] {
        // SAFETY: the slice does not outlive `self`, which holds the mapping, and the part is
        // accessed atomically only.
        unsafe { self.places.control.words(&self.map) }.unwrap_or_default()
    }

    /// True if this process writes the file; a forked child does not.
    pub(crate) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns the words of the timeline.
    pub(crate) fn timeline(&self) -> &[AtomicU64] {
        // SAFETY: the slice does not outlive `self`, which holds the mapping, and the part is
        // accessed atomically only.
        unsafe { self.places.timeline.words(&self.map) }.unwrap_or_default()
    }
}

impl Writer {
    /// Returns the mapping and the clock of the records, for a follower of the ring.
    pub(crate) fn followed(&self) -> (Arc<Mapped>, ClockSource) {
        (Arc::clone(&self.mapped), self.clock)
    }

    /// Returns the identity of the file, and the bytes of its mapped part.
    pub(crate) fn file(&self) -> (Identity, u64) {
        (self.mapped.space.identity(), self.mapped.places.end())
    }

    /// Returns the wall clock at the start, ns since 1970.
    pub(crate) fn wall_ns(&self) -> u64 {
        let wall = self.word(header::WALL_NS);
        wall.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Returns the clock's ticks at the start.
    pub(crate) fn start_ticks(&self) -> u64 {
        let start = self.word(header::START_TICKS);
        start.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Returns the approximate number of ticks in a millisecond.
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
    /// An existing file is never overwritten: the new one gets `-1`, `-2`, … before its extension.
    /// The file has its full length, but takes space on the disk only before each part is used. So
    /// a full disk loses events and counts them, and never causes a fault. No descriptor is kept.
    ///
    /// # Errors
    /// The error of the file system, or too little memory. No file is left then.
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
        // Gives a rate for processes that end before the first refresh, exact to about 0.1 %: each
        // pair is exact to some 30 ns.
        while clock::monotonic_ns() < start.ns.saturating_add(50_000) {
            std::hint::spin_loop();
        }
        writer.calibrate();
        fence(Ordering::Release);
        writer.put(0, &layout::MAGIC);
        Ok(writer)
    }

    /// Records one event, with the current time. Takes no lock, makes no system call and uses no
    /// heap, except at a thread's first event. Not for signal handlers.
    #[inline(always)]
    pub fn record(&self, event: &Event) {
        // Packed here, where the caller has the fields in registers. Stores of single fields, read
        // again in larger pieces, would stall.
        thread::record(&self.mapped, self.clock, event.words(0));
    }

    /// Records an event that made a block, enters the block into the live table and adds it to the
    /// totals.
    ///
    /// The order is: live table, ring, totals. A kill in between leaves them different by this one
    /// block. All have the same time. The cost is that of [`Writer::record`]. A block is an address
    /// and a class. The caller must ensure that its allocations and frees alternate, each recorded
    /// once before the next. A caller that hands blocks out under one lock, and takes them back
    /// under it, meets this requirement.
    #[inline(always)]
    pub fn record_alloc(&self, event: &Event) {
        let block = (key(event.class, event.address), place(event));
        let now = || self.clock.now_after();
        thread::record_alloc(&self.mapped, now, event.words(0), block);
    }

    /// Records an allocation like [`Writer::record_alloc`], with ticks that the caller has read. No
    /// other thread could allocate or free the block any more at an earlier call of
    /// [`ClockSource::now_after`].
    #[inline(always)]
    pub fn record_alloc_at(&self, event: &Event, ticks: u64) {
        let block = (key(event.class, event.address), place(event));
        thread::record_alloc(&self.mapped, || ticks, event.words(0), block);
    }

    /// Prefetches the memory that the record of this block will write, for a caller that works
    /// meanwhile.
    #[inline]
    pub fn prefetch(&self, event: &Event) {
        let block = (key(event.class, event.address), place(event));
        thread::prefetch(&self.mapped, block);
    }

    /// Records an allocation like [`Writer::record_alloc`], of a block that its owner numbers. The
    /// last free of the memory must have the ticks of `after` or earlier ones, as returned by
    /// [`Writer::record_numbered_free`]. This is cheaper, for two reasons:
    ///
    /// - the block has a place of its own in the live table;
    /// - the clock need not wait for the thread's instructions in progress.
    ///
    /// A number must stand for one block at a time, from its allocation to its free; `u32::MAX`
    /// stands for no number.
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

    /// Records an event that ended a block, takes the block out of the live table and adds it to
    /// the totals. The order is: live table, ring, totals. Returns the block's entry in the table;
    /// `None` if it was not there. Then the event's size is added to the totals.
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
        let now = || self.clock.now();
        thread::record_free(&self.mapped, now, event.words(0), block)
    }

    /// Records a free like [`Writer::record_free`], with ticks that the caller has read.
    #[inline(always)]
    pub fn record_free_at(&self, event: &Event, ticks: u64) -> Option<Removed> {
        let block = (key(event.class, event.address), place(event));
        thread::record_free(&self.mapped, || ticks, event.words(0), block)
    }

    /// Records a free like [`Writer::record_free`], of a block that its owner numbers, however its
    /// allocation was recorded. Returns the event's ticks.
    #[inline(always)]
    pub fn record_numbered_free(&self, event: &Event, (numbers, number): (&Numbers, u32)) -> u64 {
        let block = (key(event.class, event.address), place(event));
        let number = (numbers, number);
        thread::record_numbered_free(&self.mapped, self.clock, event.words(0), number, block)
    }

    /// Takes a block out of the live table before it ends, because its address may then get another
    /// block. Its event follows by [`Writer::record_left`], or [`Writer::put_live`] restores the
    /// block.
    pub fn take_live(&self, class: Class, address: u64) -> Option<Removed> {
        let live = &self.mapped.live;
        live.remove(live.spot(key(class, address)))
    }

    /// Takes a block out like [`Writer::take_live`], of a block that its owner numbers.
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

    /// Restores a block to the live table after [`Writer::take_live`], given the event that made
    /// it. The entry gets the current time.
    pub fn put_live(&self, event: &Event) {
        let live = &self.mapped.live;
        let spot = live.spot(key(event.class, event.address));
        live.insert(spot, &event.words(self.clock.now()));
    }

    /// Records an event that ended a block after [`Writer::take_live`], and adds it to the totals.
    #[inline]
    pub fn record_left(&self, event: &Event) {
        thread::record_left(&self.mapped, self.clock, event.words(0), place(event));
    }

    /// Takes blocks out of the live table that ended without a free of their own, as with their
    /// context. Adds them to the totals as freed. `wanted` selects the blocks, by the event that
    /// made each. The caller records the event of the context's end. Returns the number of these
    /// blocks, and their bytes.
    ///
    /// Looks at the whole table, which takes about a millisecond. Other threads may allocate and
    /// free meanwhile, but not free a selected block.
    pub fn drop_live(&self, wanted: impl FnMut(&Event) -> bool) -> (u64, u64) {
        thread::drop_live(&self.mapped, wanted)
    }

    /// Gives each live block to `see`, as the event that made it. A block that is made or freed
    /// meanwhile may be given or not. Not for hot paths: it reads the whole table.
    pub fn each_live(&self, see: impl FnMut(&Event)) {
        self.mapped.live.each(see);
    }

    /// True if the live table had no room for some blocks. Then a block may be recorded but not in
    /// it.
    pub fn has_missed_blocks(&self) -> bool {
        let missed = self.word(self.mapped.places.live.at as usize + layout::live::MISSED);
        missed.is_some_and(|missed| missed.load(Ordering::Relaxed) > 0)
    }

    /// Returns the bytes of a layer recorded as allocated and not as freed, by device. The last
    /// entry stands for all other devices.
    pub fn live_bytes(&self, layer: Layer) -> [u64; layout::totals::DEVICES] {
        self.mapped.tally.live_bytes(layer)
    }

    /// Returns the absolute path of the file, with the suffix that it got if the name was taken.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the current ticks of the records' clock.
    #[inline]
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Returns the panel with requests of other processes. One thread should poll it.
    pub fn control(&self) -> Panel<'_> {
        Panel::new(self.mapped.control())
    }

    /// Refreshes the pair that converts ticks to ns. Once a second is enough.
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

    /// Takes space for the next `ahead` bytes of the ring and makes their pages present, off the
    /// hot path. Then recording neither faults nor calls the system. Returns true if it took new
    /// space and more is left to take.
    pub fn prefault(&self, ahead: u64) -> bool {
        let ring = &self.mapped.ring;
        let next = ahead / layout::RECORD_BYTES as u64;
        let wanted = usize::try_from(ring.reached().saturating_add(next)).unwrap_or(usize::MAX);
        let wanted = wanted.min(ring.capacity());
        let before = ring.ready();
        ring.reserve(wanted) && ring.ready() > before && wanted < ring.capacity()
    }

    /// Prefaults like [`Writer::prefault`], as many bytes as the ring has used so far. The amount
    /// is at least 256 KiB and at most `most`, so that a short run leaves a small file.
    pub fn keep_ahead(&self, most: u64) -> bool {
        self.mapped.live.prepare();
        let used = self.mapped.ring.reached();
        let used = used.saturating_mul(layout::RECORD_BYTES as u64);
        self.prefault(used.max(LEAST_AHEAD).min(most))
    }

    /// Checks the file, at each poll of a background thread. Asks a disk again that was full, and
    /// detects a truncated file before another thread accesses it. Returns the condition of the
    /// file so far.
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

    /// Returns the aligned word at an offset of the file.
    #[inline]
    fn word(&self, at: usize) -> Option<&AtomicU64> {
        if !at.is_multiple_of(8) || at.checked_add(8)? > self.mapped.map.len() {
            return None;
        }
        // SAFETY: the word lies within the mapping, is aligned (the mapping starts on a page), and
        // is only ever accessed atomically once the header is written.
        Some(unsafe { &*self.mapped.map.as_ptr().add(at).cast::<AtomicU64>() })
    }

    /// Copies bytes into the file; out of range it copies nothing. For regions that no other thread
    /// writes at the same time.
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

/// Least number of bytes that [`Writer::keep_ahead`] keeps ahead.
const LEAST_AHEAD: u64 = 256 << 10;

/// Condition of a trace's file, see [`Writer::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The file is complete and grows as needed.
    Sound,
    /// The disk was full at least once. Fewer events are kept, and other parts may lack entries, as
    /// counted.
    Short,
    /// Another program truncated the file. Nothing is kept after that.
    Truncated,
}

/// Returns the row of the totals that counts an event.
#[inline(always)]
fn place(event: &Event) -> (Layer, u8) {
    (event.class.layer(), event.device)
}

#[cfg(test)]
mod tests;
