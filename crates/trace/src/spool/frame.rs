//! One frame: a header, the runs of its ring slots, and its events. Each can be read by itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::columns::{self, Encoder};
use crate::fnv;
use crate::layout::{get_u32, get_u64};
use crate::leb128;
use crate::tail::Tailed;

/// First eight bytes of each frame.
pub(crate) const MAGIC: [u8; 8] = *b"gpuspool";
/// Version of frames; a reader refuses another version.
const VERSION: u32 = 1;
/// Bytes of the header in this version.
pub(crate) const HEADER_BYTES: usize = 96;
/// Largest number of events of a frame that a reader accepts: the most that writers put into one.
const EVENTS_MAX: u32 = super::FRAME_EVENTS as u32;
/// Largest number of bytes of columns for an event: eight columns of a place and a value each.
const COLUMNS_MAX: u64 = 8 * 20;
/// Largest number of bytes of a run.
const RUN_MAX: u64 = 30;

/// Decoded header of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// Wall clock at the start of the trace, ns, which identifies the trace.
    pub trace: u64,
    /// Number of frames before it.
    pub number: u64,
    pub events: u32,
    /// Bytes of the runs, plain and compressed.
    pub runs: (u32, u32),
    /// Bytes of the columns, plain and compressed.
    pub columns: (u32, u32),
    /// Ticks of the first and the last event.
    pub first: u64,
    pub last: u64,
    /// Events overwritten before they could be written, since the frame before.
    pub missed: u64,
    /// Checksum of the compressed bytes.
    pub checksum: u64,
}

impl Header {
    fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, value: &[u8]| crate::layout::put(&mut bytes, at, value);
        put(0, &MAGIC);
        for (at, value) in [
            (8, VERSION),
            (12, HEADER_BYTES as u32),
            (32, self.events),
            (36, self.runs.0),
            (40, self.runs.1),
            (44, self.columns.0),
            (48, self.columns.1),
        ] {
            put(at, &value.to_le_bytes());
        }
        for (at, value) in [
            (16, self.trace),
            (24, self.number),
            (56, self.first),
            (64, self.last),
            (72, self.missed),
            (80, self.checksum),
        ] {
            put(at, &value.to_le_bytes());
        }
        let sum = fnv::words(&bytes[..88]);
        crate::layout::put(&mut bytes, 88, &sum.to_le_bytes());
        bytes
    }

    /// Returns the header in these bytes, if it is a sound one.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let sound = bytes.get(..8)? == MAGIC
            && get_u32(bytes, 8)? == VERSION
            && get_u32(bytes, 12)? == HEADER_BYTES as u32
            && get_u64(bytes, 88)? == fnv::words(bytes.get(..88)?);
        let header = Header {
            trace: get_u64(bytes, 16)?,
            number: get_u64(bytes, 24)?,
            events: get_u32(bytes, 32)?,
            runs: (get_u32(bytes, 36)?, get_u32(bytes, 40)?),
            columns: (get_u32(bytes, 44)?, get_u32(bytes, 48)?),
            first: get_u64(bytes, 56)?,
            last: get_u64(bytes, 64)?,
            missed: get_u64(bytes, 72)?,
            checksum: get_u64(bytes, 80)?,
        };
        let events = u64::from(header.events);
        let sane = header.events <= EVENTS_MAX
            && u64::from(header.columns.0) <= events * COLUMNS_MAX
            && u64::from(header.runs.0) <= events * RUN_MAX
            && u64::from(header.columns.1) <= events * COLUMNS_MAX * 2 + 1024
            && u64::from(header.runs.1) <= events * RUN_MAX * 2 + 1024;
        (sound && sane).then_some(header)
    }

    /// Returns the bytes of the frame after its header.
    fn rest(&self) -> u64 {
        u64::from(self.runs.1) + u64::from(self.columns.1)
    }
}

/// Encoder of whole frames.
pub(crate) struct Frame {
    encoder: Encoder,
    packer: zstd::bulk::Compressor<'static>,
    slots: Vec<(u32, u64)>,
    plain: Vec<u8>,
    /// Bytes of the frame that was made last.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// Returns an encoder of frames at a level of zstd.
    pub fn new(level: i32) -> io::Result<Frame> {
        Ok(Frame {
            encoder: Encoder::default(),
            packer: zstd::bulk::Compressor::new(level)?,
            slots: Vec::new(),
            plain: Vec::new(),
            bytes: Vec::new(),
        })
    }

    /// Makes a frame of at least one event; the events are in the order of time. Takes `trace`,
    /// `number` and `missed` from the header.
    pub fn make(&mut self, header: Header, events: &[Tailed]) -> io::Result<()> {
        let first = events.first().map_or(0, Tailed::ticks);
        let mut header = Header {
            events: events.len() as u32,
            first,
            last: events.last().map_or(0, Tailed::ticks),
            ..header
        };
        self.bytes.clear();
        self.bytes.resize(HEADER_BYTES, 0);
        self.slots.clear();
        self.slots
            .extend(events.iter().map(|one| (one.chunk, one.number)));
        self.slots.sort_unstable();
        self.plain.clear();
        put_runs(&self.slots, &mut self.plain);
        header.runs = self.pack()?;
        self.plain.clear();
        let words = events.iter().map(|one| &one.words);
        self.encoder.encode(first, words, &mut self.plain);
        header.columns = self.pack()?;
        let packed = self.bytes.get(HEADER_BYTES..).unwrap_or_default();
        header.checksum = fnv::words(packed);
        crate::layout::put(&mut self.bytes, 0, &header.bytes());
        Ok(())
    }

    /// Appends the plain bytes, compressed. Returns their number before and after.
    fn pack(&mut self) -> io::Result<(u32, u32)> {
        let packed = self.packer.compress(&self.plain)?;
        self.bytes.extend_from_slice(&packed);
        Ok((self.plain.len() as u32, packed.len() as u32))
    }
}

/// Appends the runs of sorted slots. Each run has three numbers:
///
/// - the difference of its chunk from the chunk of the run before;
/// - the difference of its first event's number from the one of the run before;
/// - its number of successive events.
fn put_runs(slots: &[(u32, u64)], to: &mut Vec<u8>) {
    let mut last = (0, 0_u64);
    let follows = |a: &(u32, u64), b: &(u32, u64)| a.0 == b.0 && a.1.wrapping_add(1) == b.1;
    for run in slots.chunk_by(follows) {
        let Some((chunk, number)) = run.first().copied() else {
            continue;
        };
        leb128::put(to, u64::from(chunk - last.0));
        leb128::put(to, columns::zigzag(number.wrapping_sub(last.1)));
        leb128::put(to, run.len() as u64);
        last = (chunk, number);
    }
}

/// Calls `call` with the chunk, first number and length of each run. True if all runs are valid.
pub(super) fn each_run(mut from: &[u8], events: u32, mut call: impl FnMut(u64, u64, u64)) -> bool {
    let (mut chunk, mut number, mut left) = (0_u64, 0_u64, u64::from(events));
    while !from.is_empty() {
        let next = (
            leb128::take(&mut from),
            leb128::take(&mut from),
            leb128::take(&mut from),
        );
        let (Some(ahead), Some(difference), Some(length)) = next else {
            return false;
        };
        chunk = chunk.wrapping_add(ahead);
        number = number.wrapping_add(columns::unzigzag(difference));
        if length == 0 || length > left || number.checked_add(length).is_none() {
            return false;
        }
        left -= length;
        call(chunk, number, length);
    }
    left == 0
}

/// Place and header of a frame in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub offset: u64,
    pub header: Header,
}

impl Span {
    /// Returns the words of the frame's events; `None` if they are damaged.
    pub fn read(&self, file: &File) -> Option<Vec<[u64; 7]>> {
        let packed = self.packed(file)?;
        let columns = packed.get(self.header.runs.1 as usize..)?;
        let plain = unpack(columns, self.header.columns.0)?;
        columns::decode(&plain, self.header.events as usize, self.header.first)
    }

    /// Returns all bytes of the frame; `None` if they are damaged or were replaced.
    pub fn whole(&self, file: &File) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.end() - self.offset).ok()?];
        file.read_exact_at(&mut bytes, self.offset).ok()?;
        let (header, packed) = bytes.split_at_checked(HEADER_BYTES)?;
        let is_whole =
            Header::parse(header)? == self.header && fnv::words(packed) == self.header.checksum;
        is_whole.then_some(bytes)
    }

    /// True if its bytes were lost since the file was scanned: not by a newer frame that took their
    /// place.
    pub fn is_lost(&self, file: &File) -> bool {
        let mut bytes = [0; HEADER_BYTES];
        let read = file.read_exact_at(&mut bytes, self.offset);
        let is_there = read.is_err() || Header::parse(&bytes) == Some(self.header);
        is_there && self.packed(file).is_none()
    }

    /// Returns the compressed bytes, if they are undamaged.
    pub fn packed(&self, file: &File) -> Option<Vec<u8>> {
        let mut packed = vec![0; usize::try_from(self.header.rest()).ok()?];
        let at = self.offset.checked_add(HEADER_BYTES as u64)?;
        file.read_exact_at(&mut packed, at).ok()?;
        (fnv::words(&packed) == self.header.checksum).then_some(packed)
    }

    /// Returns the offset of the first byte after it.
    pub fn end(&self) -> u64 {
        self.offset
            .saturating_add(HEADER_BYTES as u64)
            .saturating_add(self.header.rest())
    }
}

pub(super) fn unpack(packed: &[u8], bytes: u32) -> Option<Vec<u8>> {
    let plain = zstd::bulk::decompress(packed, bytes as usize).ok()?;
    (plain.len() == bytes as usize).then_some(plain)
}

/// Number of events that a reader accepts, of all frames of a spool together. Frames of a hundred
/// bytes can claim tens of thousands of events each.
#[derive(Debug)]
pub(crate) struct Budget {
    left: u64,
}

impl Budget {
    /// Events that are accepted in any case.
    const FREE: u64 = 1 << 20;
    /// Further events accepted for each byte. The times alone of real events take about one byte
    /// each.
    const PER_BYTE: u64 = 16;

    /// Returns the budget of a spool without frames.
    pub fn new() -> Budget {
        Budget { left: Budget::FREE }
    }

    /// Adds the bytes of a frame.
    pub fn add(&mut self, bytes: u64) {
        self.left = self
            .left
            .saturating_add(bytes.saturating_mul(Budget::PER_BYTE));
    }

    /// True if `events` more events are accepted.
    pub fn take(&mut self, events: u32) -> bool {
        let left = self.left.checked_sub(events.into());
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}
