//! What elastic segments say.

use std::fmt;

/// Where the memory for a piece comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// New memory first; spare memory when there is none.
    #[default]
    Pressure,
    /// Spare memory first, where otherwise more would be held than pieces ever had at a time, and a 64th.
    Least,
}

/// Why no memory becomes spare any more: the announcements are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The sum of live bytes is not the one before and this tensor.
    Sum {
        /// Bytes by our count.
        ours: u64,
        /// Bytes that were announced.
        theirs: u64,
    },
    /// A tensor was freed that was not allocated.
    Unborn(u64),
    /// A tensor was freed with another size than it was allocated with.
    Resized(u64),
    /// A tensor was allocated where one is live.
    Overlaps(u64),
    /// A tensor lies in a segment in part only.
    Straddles(u64),
    /// A segment was freed with a tensor in it.
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
            Trouble::Overlaps(at) => write!(f, "a tensor at {at:#x} overlaps a live one"),
            Trouble::Straddles(at) => write!(
                f,
                "a tensor at {at:#x} begins or ends outside of its segment"
            ),
            Trouble::FreedLive(at) => {
                write!(f, "the segment at {at:#x} was freed with live tensors")
            }
        }
    }
}

/// The memory of a tensor that was just allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// The segment was new and not trusted yet; this tensor shows that its allocator announces its tensors.
    pub proves: bool,
    /// Pages that got memory of the host, because the device had none.
    pub on_host: u32,
    /// Pages that got no memory at all.
    pub missing: u32,
    /// What is wrong, told once: from here on no memory becomes spare.
    pub trouble: Option<Trouble>,
}

/// Why there is no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal<E> {
    /// None is served: the announcements were wrong once, or the driver's addresses do not begin on a page.
    Off,
    /// The driver's error; out of memory if the bytes and what is in use do not fit.
    Driver(E),
}

/// A segment that was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreedSegment {
    /// Bytes that were asked for.
    pub bytes: u64,
    /// What is wrong, told once: from here on no memory becomes spare.
    pub trouble: Option<Trouble>,
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The beginning of its segment.
    pub base: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Which segment it is: no other has this number.
    pub number: u64,
    /// An address in the segment that has memory, the address itself if it has; `None`: the segment has none.
    pub backed: Option<u64>,
}

/// How things stand, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Of all segments.
    pub segments: u64,
    /// Memory of the device.
    pub held: u64,
    /// Of that, what some piece has.
    pub in_use: u64,
    /// Of that, what any piece may have.
    pub spare: u64,
    /// Of what is in use, in pieces that keep their memory whether or not a tensor is there.
    pub pinned: u64,
    /// Memory of the host.
    pub on_host: u64,
    /// How often memory went to another piece, so far.
    pub moves: u64,
}
