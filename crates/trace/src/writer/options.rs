//! Options with which a new trace is created.

use super::places::Places;
use crate::process::Facts;

/// Size of a new trace, and the facts recorded in it.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Bytes of the event ring, rounded down to a power of two and at least
    /// [`WriterOptions::MIN_BYTES`]. The file is larger, see [`WriterOptions::file_bytes`].
    pub bytes: u64,
    /// The rank of the process in its job, if it has one.
    pub rank: Option<u32>,
    /// Facts about the process that are recorded.
    pub facts: Facts,
    /// Number of blocks that the live table has room for, in whole groups of seven. At least 1,792
    /// and at most 2^26. It has room for as many again that their owners number. `None`: one for
    /// eight events of the ring, at most 131,072.
    pub live_blocks: Option<u64>,
    /// Number of nodes that the file has room for, 16 bytes each: frames and ranges of stacks. They
    /// take no more bytes than the ring.
    pub stack_nodes: u32,
}

impl WriterOptions {
    /// The smallest ring: one page.
    pub const MIN_BYTES: u64 = 4096;
    /// The largest ring, 1 TiB.
    pub const MAX_BYTES: u64 = 1 << 40;

    /// Returns the bytes of the file: about 760 KiB and 5 times the ring. For a ring of 16 MiB and
    /// more, it is about 45 MiB and 1/128 more than the ring. Unused parts take neither space on
    /// the disk nor memory.
    pub fn file_bytes(&self) -> u64 {
        Places::of(self).end()
    }

    pub(super) fn ring_bytes(&self) -> u64 {
        let bytes = self
            .bytes
            .clamp(WriterOptions::MIN_BYTES, WriterOptions::MAX_BYTES);
        1 << bytes.ilog2()
    }
}

impl Default for WriterOptions {
    /// A ring of 64 MiB, a million events, and a million nodes of stacks.
    fn default() -> WriterOptions {
        WriterOptions {
            bytes: 64 << 20,
            rank: None,
            facts: Facts::Masked,
            live_blocks: None,
            stack_nodes: 1 << 20,
        }
    }
}
