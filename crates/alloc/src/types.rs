//! What pools hand out and take back.

use crate::handles::Address;
use std::fmt;
use std::time::Duration;

/// How long a call waits for what another thread does with the driver. That may wait for the device; a capture that begins,
/// a free and a request must not wait for ever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Where a block came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From the cache, its work known to be complete or ordered.
    Hit,
    /// From the cache, after later work was ordered behind its work.
    Ordered,
    /// From the cache, after the host waited for its work.
    Waited,
    /// From the driver.
    Grown,
}

/// When something was seen, on the clock of the caller; 0: not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub u64);

impl From<()> for Stamp {
    fn from((): ()) -> Stamp {
        Stamp(0)
    }
}

/// The number of a block that its pool does not keep.
pub const UNNUMBERED: u32 = u32::MAX;

/// A block handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Where it begins.
    pub address: Address,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes of the block.
    pub size: u64,
    /// Where it came from.
    pub source: Source,
    /// The latest free that the pool knew of, the block's own among them.
    pub after: Stamp,
    /// The block's number in its pool until it is freed, as no other block in the callers' hands has it; [`UNNUMBERED`]: it
    /// has none.
    pub number: u32,
}

/// A block handed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// Where it begins.
    pub address: Address,
    /// Bytes asked for when it was allocated.
    pub requested: u64,
    /// Bytes of the block.
    pub size: u64,
    /// The ordinal of its device.
    pub device: i32,
    /// Whether it was handed out for no stream in particular, as `cudaMalloc` does.
    pub for_all: bool,
    /// The number that it had, see [`Grant::number`].
    pub number: u32,
}

/// Why memory could not be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeError<E> {
    /// The address is not the beginning of a block of the pool: the driver has to answer.
    Unknown,
    /// The block is free already.
    NotLive,
    /// The driver refused what the free needed. The block counts as freed.
    Driver(E),
}

impl<E: fmt::Debug> fmt::Display for FreeError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FreeError::Unknown => write!(f, "not an address of the pool"),
            FreeError::NotLive => write!(f, "freed already"),
            FreeError::Driver(error) => write!(f, "the driver answered {error:?}"),
        }
    }
}

impl<E: fmt::Debug> std::error::Error for FreeError<E> {}
