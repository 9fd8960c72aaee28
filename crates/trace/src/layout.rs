//! Layout of a trace file: the one definition shared by writer and reader.
//!
//! All numbers are little endian. The file describes itself:
//!
//! - the header names each part with offset, length and stride;
//! - the field table names each field of a record with offset and width.
//!
//! So a reader finds the parts and fields known to it in a file of any minor version.
//! `docs/trace-format.md` describes the format in prose.

#[cfg(target_endian = "big")]
compile_error!("the trace file is little endian, and CUDA runs on no other machine");

/// First eight bytes of every trace file. They are written last: a file without them was never
/// completely created.
pub const MAGIC: [u8; 8] = *b"gpushim\0";

/// Major version, raised when an older reader could no longer interpret a file. Such a reader
/// refuses the file.
pub const MAJOR: u32 = 1;

/// Minor version, raised when parts, fields, kinds or facts are added. An older reader skips the
/// unknown ones.
pub const MINOR: u32 = 0;

/// Bytes of the header, one page, so that the parts after it stay page-aligned.
pub const HEADER_BYTES: usize = 4096;

/// Bytes of one record of the event ring: a cache line, so that two writers never share one.
pub const RECORD_BYTES: usize = 64;

/// Offsets within the header of the values written once, when the file is created.
pub mod header {
    /// `u32`: [`super::MAJOR`] of the writer.
    pub const MAJOR: usize = 8;
    /// `u32`: [`super::MINOR`] of the writer.
    pub const MINOR: usize = 12;
    /// `u32`: bytes of the header.
    pub const BYTES: usize = 16;
    /// `u32`: offset of the parts directory.
    pub const PARTS_OFFSET: usize = 20;
    /// `u32`: entries in the parts directory.
    pub const PARTS_COUNT: usize = 24;
    /// `u32`: bytes of one entry of the parts directory.
    pub const PARTS_STRIDE: usize = 28;
    /// `u32`: offset of the field table.
    pub const FIELDS_OFFSET: usize = 32;
    /// `u32`: entries in the field table.
    pub const FIELDS_COUNT: usize = 36;
    /// `u32`: bytes of one entry of the field table.
    pub const FIELDS_STRIDE: usize = 40;
    /// `u32`: clock that gives the ticks of the records ([`crate::ClockSource`]).
    pub const CLOCK: usize = 44;
    /// `u64`: bytes of the whole file.
    pub const FILE_BYTES: usize = 48;
    /// `u64`: wall clock at the start, ns since 1970.
    pub const WALL_NS: usize = 56;
    /// `u64`: ticks at the start.
    pub const START_TICKS: usize = 64;
    /// `u64`: `CLOCK_MONOTONIC` at the start, ns.
    pub const START_NS: usize = 72;
    /// `u64`: checksum of the header without [`CHECKSUM`] itself and without the changing part.
    pub const CHECKSUM: usize = 80;

    /// The changing part of the header: `u64` index (0 or 1) of the clock pair in force.
    pub const CLOCK_CURRENT: usize = 128;
    /// Two pairs of (`u64` ticks, `u64` ns of `CLOCK_MONOTONIC`). The writer fills the pair that is
    /// not in force and then switches, so a kill in between leaves a whole pair.
    pub const CLOCK_PAIRS: usize = 136;
    /// First byte of the changing part.
    pub const CHANGING_FROM: usize = 128;
    /// First byte after the changing part.
    pub const CHANGING_TO: usize = 256;

    /// Offset of the parts directory in this version.
    pub(crate) const PARTS_AT: usize = 256;
    /// Offset of the field table in this version.
    pub(crate) const FIELDS_AT: usize = 1024;
}

/// Offsets within an entry of the parts directory.
pub mod part {
    /// `u32`: a [`super::PartKind`].
    pub const KIND: usize = 0;
    /// `u64`: offset in the file.
    pub const OFFSET: usize = 8;
    /// `u64`: length of the part in bytes.
    pub const LENGTH: usize = 16;
    /// `u64`: bytes of one entry, 1 for text.
    pub const STRIDE: usize = 24;
    /// Bytes of an entry in this version.
    pub const BYTES: usize = 32;
}

/// Kind of a part of the file. The number 1 is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PartKind {
    /// Text facts about the process, see [`facts`].
    Facts = 2,
    /// Progress of the event ring, see [`cursor`].
    Cursor = 3,
    /// The event ring: a power of two of records, see [`FIELDS`].
    Ring = 4,
    /// One `u64` for each chunk of the ring, see [`Chunk`]: a power of two of them.
    Chunks = 5,
    /// The blocks that are live now.
    Live = 6,
    /// Sums of all allocations and frees so far.
    Totals = 7,
    /// Texts that events and other parts refer to.
    Strings = 8,
    /// Call stacks and open ranges, as a tree.
    Stacks = 9,
    /// The libraries and programs that were loaded.
    Modules = 10,
    /// Names of code that is in no file.
    Jit = 11,
    /// Course of memory over the whole run.
    Timeline = 12,
    /// Places in source code that frames of interpreters refer to.
    Sites = 13,
    /// Requests of another process to the writer, see [`control`].
    Control = 14,
}

/// Offsets within the facts part.
pub mod facts {
    /// `u64`: bytes of text that are complete.
    pub const COMMITTED: usize = 0;
    /// `u64`: facts that did not fit.
    pub const CUT: usize = 8;
    /// The text: `key TAB value LF`, with `\\`, `\t`, `\n` escaped by a backslash in both.
    pub const TEXT: usize = 16;
    /// Bytes of the part in this version.
    pub const BYTES: usize = 256 << 10;
    /// Longest value in bytes; the rest of a longer one is cut off and replaced by `…`.
    pub const VALUE_MAX: usize = 8 << 10;
}

/// Offsets within the cursor part.
pub mod cursor {
    /// `u64`: attempts so far to take a chunk. The next chunk tried is this number modulo the count
    /// of chunks.
    pub const NEXT: usize = 0;
    /// `u64`: events dropped because another thread held every chunk tried.
    pub const DROPPED: usize = 64;
    /// Bytes of the part in this version.
    pub const BYTES: usize = 4096;
}

/// Offsets within the control part: a request of another process to the writer, and the answer. The
/// part consists of words.
pub mod control {
    /// `u64`: the number of the request × 4, plus its state: 0 idle, 1 asked, 2 taken by the
    /// writer, 3 answered.
    pub const TURN: usize = 0;
    /// `u64`: number of the kind of request.
    pub const REQUEST: usize = 8;
    /// `u64`: bytes of the text.
    pub const TEXT_BYTES: usize = 16;
    /// `u64`: the answer, by the numbers of [`crate::control::Answer`].
    pub const ANSWER: usize = 24;
    /// Text of the request, UTF-8, padded with zeros.
    pub const TEXT: usize = 64;
    /// Largest length of a text in bytes.
    pub const TEXT_MAX: usize = 1024;
    /// Bytes of the part in this version.
    pub const BYTES: usize = 4096;
}

/// Offsets and sizes of the live table. It begins with [`HEAD_BYTES`](live::HEAD_BYTES), followed
/// by groups. Each group has a line of keys and an entry for each key. The part consists of words.
pub mod live {
    use crate::event::Class;

    /// `u64`: blocks that are not in the table, because they found no place.
    pub const MISSED: usize = 0;
    /// Bytes before the first group: as many as in a group, so that no group crosses a page.
    pub const HEAD_BYTES: usize = GROUP_BYTES;
    /// Keys of a group: seven, so that they and the count after them fill a cache line.
    pub const KEYS: usize = 7;
    /// Bytes of a group, the stride of the part. A group consists of:
    ///
    /// - [`KEYS`] words for the keys;
    /// - a word that counts the keys that passed this full group, from a home here or before;
    /// - [`KEYS`] entries.
    pub const GROUP_BYTES: usize = 512;
    /// Bytes of an entry: an unused word, then the words of a record from its ticks on. Their
    /// layout is that of version 1.0, independent of the field table.
    pub const ENTRY_BYTES: usize = 64;

    /// Key of a place without a block.
    pub const FREE: u64 = 0;
    /// Key of a place while its entry is written.
    pub const WRITING: u64 = 1;

    /// Returns the key of a block: its class + 1 in the highest byte, its address in the other
    /// seven. Thus blocks of different layers at the same address have different keys. `None` if
    /// the address takes more than seven bytes.
    #[inline(always)]
    pub const fn key(class: Class, address: u64) -> Option<u64> {
        if address >> 56 != 0 || matches!(class, Class::Unknown) {
            return None;
        }
        Some((class as u64 + 1) << 56 | address)
    }
}

/// Sizes of the totals: stripes, each written by one thread at a time. A reader adds the stripes
/// up.
pub mod totals {
    /// Stripes in this version.
    pub const STRIPES: usize = 128;
    /// Rows of a layer: devices 0 to 7, then one row for all other and unknown devices.
    pub const DEVICES: usize = 9;
    /// Layers, by the numbers of [`crate::Layer`].
    pub const LAYERS: usize = 5;
    /// Offset of the first row in a stripe. The words before it are private to the writer.
    pub const ROWS_AT: usize = 64;
    /// Bytes of a row: `u64` allocations, bytes allocated, frees, bytes freed.
    pub const ROW_BYTES: usize = 32;
    /// Bytes of a stripe: whole cache lines.
    pub const STRIPE_BYTES: usize = (ROWS_AT + LAYERS * DEVICES * ROW_BYTES).next_multiple_of(64);
}

/// One field of a record: its name, offset and width in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, at most [`field::NAME_BYTES`] bytes.
    pub name: &'static str,
    /// Offset within the record, bytes.
    pub offset: u16,
    /// Width: 1, 2, 4 or 8 bytes.
    pub width: u16,
}

/// Offsets within an entry of the field table.
pub mod field {
    /// Name, padded with zeros.
    pub const NAME: usize = 0;
    /// Largest length of a name in bytes.
    pub const NAME_BYTES: usize = 12;
    /// `u16`: offset within the record.
    pub const OFFSET: usize = 12;
    /// `u16`: width of the field in bytes.
    pub const WIDTH: usize = 14;
    /// Bytes of an entry in this version.
    pub const BYTES: usize = 16;
}

/// The fields of a record in this version, in the order of [`FieldId`].
pub const FIELDS: [Field; 14] = [
    field("sequence", 0, 8),
    field("ticks", 8, 8),
    field("kind", 16, 1),
    field("class", 17, 1),
    field("flags", 18, 2),
    field("device", 20, 1),
    field("stream", 21, 1),
    field("result", 22, 2),
    field("thread", 24, 4),
    field("stack", 28, 4),
    field("address", 32, 8),
    field("size", 40, 8),
    field("extra0", 48, 8),
    field("extra1", 56, 8),
];

/// Indexes into [`FIELDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the field of the same name")]
pub enum FieldId {
    Sequence,
    Ticks,
    Kind,
    Class,
    Flags,
    Device,
    Stream,
    Result,
    Thread,
    Stack,
    Address,
    Size,
    Extra0,
    Extra1,
}

const fn field(name: &'static str, offset: u16, width: u16) -> Field {
    Field {
        name,
        offset,
        width,
    }
}

/// Most slots that this version puts into a chunk. Threads contend for a counter at each new chunk:
/// large chunks are faster (`docs/measurements/2026-11-26-threads.md`). But a thread that ends
/// after a few events leaves the other slots of its chunk empty. The ring then keeps fewer events.
pub const CHUNK_SLOTS: usize = 32;

/// Number of slots in a chunk of a ring; both are powers of two. A small ring gets small chunks, so
/// that threads that hold one each do not hold all of the ring.
pub const fn chunk_slots(ring_slots: usize) -> usize {
    match ring_slots / 256 {
        0 => 1,
        slots if slots > CHUNK_SLOTS => CHUNK_SLOTS,
        slots => slots,
    }
}

/// State of a chunk, decoded from its word. A chunk counts all events ever recorded in it, so the
/// number of lost events is known exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// No thread holds it, and this many events were recorded in it.
    Closed(u64),
    /// One thread fills it, and this many events were recorded in it before.
    Open(u64),
}

impl Chunk {
    /// Decodes a word: `2 events` when closed, one more while open.
    pub const fn decode(word: u64) -> Chunk {
        if word & 1 == 0 {
            Chunk::Closed(word / 2)
        } else {
            Chunk::Open(word / 2)
        }
    }

    /// Returns the word that encodes this state.
    pub const fn word(self) -> u64 {
        match self {
            Chunk::Closed(events) => events.wrapping_mul(2),
            Chunk::Open(events) => events.wrapping_mul(2) | 1,
        }
    }
}

/// State of a slot, decoded from its sequence word. The number of an event counts, from 0, the
/// events recorded in the same chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Nothing was ever written here.
    Empty,
    /// The event with this number is complete.
    Complete(u64),
    /// The event with this number was being written.
    Writing(u64),
}

impl Slot {
    /// Decodes a sequence word: 0, `2 (number + 1)` when complete, one more while being written.
    pub const fn decode(sequence: u64) -> Slot {
        match sequence {
            // 1 is never written; there is no event to name.
            0 | 1 => Slot::Empty,
            word if word & 1 == 0 => Slot::Complete(word / 2 - 1),
            word => Slot::Writing(word / 2 - 1),
        }
    }

    /// The sequence word of a complete event.
    pub const fn complete(number: u64) -> u64 {
        number.wrapping_add(1).wrapping_mul(2)
    }

    /// The sequence word of an event being written.
    pub const fn writing(number: u64) -> u64 {
        Slot::complete(number) | 1
    }
}

/// Returns the checksum of a header: 64-bit FNV-1a over the bytes that do not change after
/// creation.
pub fn checksum(header: &[u8]) -> u64 {
    let constant = |at: usize| {
        !(header::CHECKSUM..header::CHECKSUM + 8).contains(&at)
            && !(header::CHANGING_FROM..header::CHANGING_TO).contains(&at)
            && at >= MAGIC.len()
    };
    let bytes = header.iter().enumerate().filter(|(at, _)| constant(*at));
    crate::fnv::sum(bytes.map(|(_, byte)| u64::from(*byte)))
}

/// Reads the little-endian `u64` at an offset, if it is there.
pub fn get_u64(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(word.try_into().ok()?))
}

/// Reads the little-endian `u32` at an offset, if it is there.
pub fn get_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

/// Reads the little-endian `u16` at an offset, if it is there.
pub fn get_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(word.try_into().ok()?))
}

/// Writes bytes at an offset; out of range it writes nothing.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = at
        .checked_add(value.len())
        .and_then(|end| bytes.get_mut(at..end))
    {
        place.copy_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_fill_a_record_without_overlap() {
        let mut taken = [false; RECORD_BYTES];
        for field in FIELDS {
            assert!(field.name.len() <= field::NAME_BYTES);
            for at in field.offset..field.offset + field.width {
                assert!(!taken[usize::from(at)], "{} overlaps", field.name);
                taken[usize::from(at)] = true;
            }
        }
        assert!(taken.iter().all(|taken| *taken), "no byte is left");
        assert_eq!(FIELDS[FieldId::Extra1 as usize].name, "extra1");
        assert_eq!(FIELDS[FieldId::Stack as usize].name, "stack");
    }

    #[test]
    fn sequence_words_round_trip() {
        assert_eq!(Slot::decode(0), Slot::Empty);
        assert_eq!(Slot::decode(1), Slot::Empty);
        for ticket in [0, 1, 63, 1 << 40] {
            assert_eq!(Slot::decode(Slot::complete(ticket)), Slot::Complete(ticket));
            assert_eq!(Slot::decode(Slot::writing(ticket)), Slot::Writing(ticket));
        }
    }

    #[test]
    fn chunk_words_round_trip() {
        for events in [0, 1, 16, 1 << 40] {
            for chunk in [Chunk::Closed(events), Chunk::Open(events)] {
                assert_eq!(Chunk::decode(chunk.word()), chunk);
            }
        }
    }

    #[test]
    fn chunks_divide_every_ring() {
        for shift in 0..35 {
            let (ring, chunk) = (1_usize << shift, chunk_slots(1 << shift));
            assert!(chunk.is_power_of_two() && ring.is_multiple_of(chunk));
            assert!(chunk == 1 || ring / chunk >= 256);
        }
        assert_eq!(chunk_slots(1 << 20), CHUNK_SLOTS);
    }

    #[test]
    fn checksum_ignores_only_what_changes() {
        let mut header = vec![7_u8; HEADER_BYTES];
        let before = checksum(&header);
        header[header::CLOCK_PAIRS] = 1;
        header[header::CHECKSUM] = 1;
        header[0] = 1;
        assert_eq!(checksum(&header), before);
        header[header::PARTS_AT] = 1;
        assert_ne!(checksum(&header), before);
    }

    #[test]
    fn numbers_out_of_range_are_none() {
        assert_eq!(get_u64(&[0; 8], 1), None);
        assert_eq!(get_u64(&[0; 8], usize::MAX), None);
        assert_eq!(get_u32(&[1, 0, 0, 0], 0), Some(1));
        assert_eq!(get_u16(&[1, 2], 0), Some(0x201));
    }
}
