//! Types for allocations and frees.

use crate::handles::Address;
use std::fmt;
use std::time::Duration;

/// Maximum wait of a call for another thread's driver call, which may wait for the device. The
/// beginning of a capture, a free and a request must not wait forever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Source of an allocated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From the cache; its work is known to be complete or ordered.
    Hit,
    /// From the cache, after later work was ordered behind its work.
    Ordered,
    /// From the cache, after the host waited for its work.
    Waited,
    /// From the driver, or moved within the pool.
    Grown,
}

/// Time of an event on the caller's clock; 0 if it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub u64);

impl From<()> for Stamp {
    fn from((): ()) -> Stamp {
        Stamp(0)
    }
}

/// Number of a block that its pool does not keep.
pub const UNNUMBERED: u32 = u32::MAX;

/// A block that was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Address of the first byte.
    pub address: Address,
    /// Bytes that were requested.
    pub requested: u64,
    /// Bytes of the whole block.
    pub size: u64,
    /// Source that the block came from.
    pub source: Source,
    /// Stamp of the latest free that the pool knew of, the block's own included.
    pub after: Stamp,
    /// Number of the block in its pool until it is freed, unique among live blocks; [`UNNUMBERED`]
    /// if it has none.
    pub number: u32,
}

/// A block that is being freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// Address of the first byte.
    pub address: Address,
    /// Bytes that were requested when it was allocated.
    pub requested: u64,
    /// Bytes of the whole block.
    pub size: u64,
    /// Ordinal of the block's device.
    pub device: i32,
    /// True if it was allocated for no particular stream, as by `cudaMalloc`.
    pub for_all: bool,
    /// Number of the block, as in [`Grant::number`].
    pub number: u32,
}

/// Reason that memory could not be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeError<E> {
    /// The address is not the beginning of a block of the pool: the driver must answer.
    Unknown,
    /// The block is free already.
    NotLive,
    /// The driver refused a call that the free needed. The block counts as freed.
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
