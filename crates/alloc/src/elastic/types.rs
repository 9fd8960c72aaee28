//! Types in the interface of elastic segments.

use std::fmt;

/// Source of the memory for a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// New memory first; spare memory when there is none.
    #[default]
    Pressure,
    /// Spare memory first, if new memory would bring the bytes held above a limit. The limit is the
    /// most that pieces ever had at a time, and a 64th of it.
    Least,
}

/// Reason why no memory becomes spare any more: an announcement was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The announced sum of live bytes is not the last sum changed by this tensor.
    Sum {
        /// Bytes by the library's count.
        ours: u64,
        /// Bytes in the announcement.
        theirs: u64,
    },
    /// A tensor was freed that was not allocated.
    Unborn(u64),
    /// A tensor was freed with another size than it was allocated with.
    Resized(u64),
    /// A tensor was allocated at the address of a live one.
    Overlaps(u64),
    /// A tensor lies in a segment in part only, or where a range is not mapped.
    Straddles(u64),
    /// A segment was freed with a tensor in it, or the addresses of a range.
    FreedLive(u64),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Sum { ours, theirs } => {
                write!(
                    f,
                    "{theirs} bytes are announced as live where {ours} are counted"
                )
            }
            Trouble::Unborn(at) => {
                write!(f, "a tensor at {at:#x} was freed that was not announced")
            }
            Trouble::Resized(at) => write!(f, "the tensor at {at:#x} was freed with another size"),
            Trouble::Overlaps(at) => {
                write!(f, "a tensor at {at:#x} was allocated where one is live")
            }
            Trouble::Straddles(at) => {
                write!(f, "a tensor at {at:#x} is in part outside of its segment")
            }
            Trouble::FreedLive(at) => {
                write!(f, "the segment at {at:#x} was freed with live tensors")
            }
        }
    }
}

/// The memory of a tensor that was just allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// True for the first tensor at the beginning of an untrusted segment: it shows that the
    /// allocator announces its tensors.
    pub proves: bool,
    /// Pages that got memory of the host, because the device had none.
    pub on_host: u32,
    /// Pages that got no memory at all.
    pub missing: u32,
    /// First error in the announcements, reported once. No memory becomes spare after it.
    pub trouble: Option<Trouble>,
}

/// Segment around an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Address of the segment's beginning.
    pub base: u64,
    /// Bytes that were requested.
    pub bytes: u64,
    /// Number of the segment; no other segment has or had it.
    pub number: u64,
    /// An address in the segment that has memory: the address itself if it has memory. `None` if
    /// the segment has none.
    pub backed: Option<u64>,
}

/// State of the segments, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of all segments: requested for them, or mapped in ranges.
    pub segments: u64,
    /// Memory of the device that the segments hold.
    pub held: u64,
    /// Part of `held` that a piece has, without idle pieces.
    pub in_use: u64,
    /// Part of `held` that any piece may take, with idle pieces.
    pub spare: u64,
    /// Part of `in_use` in pieces that are pinned, or that keep their memory without a tensor.
    pub pinned: u64,
    /// Memory of the host that the segments hold.
    pub on_host: u64,
    /// Number of times that memory went to another piece, so far.
    pub moves: u64,
}
