//! What elastic segments need of a device: the driver in the shim, a simulation in tests.

use std::fmt::Debug;

/// Bytes of a page: the smallest physical memory that the driver makes.
pub const PAGE: u64 = 2 << 20;

/// A piece of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The driver's number of it.
    pub number: u64,
    /// Its size, a multiple of [`PAGE`].
    pub bytes: u64,
    /// Whether it is memory of the host, which the device reaches more slowly.
    pub is_host: bool,
}

/// The calls that elastic segments make, about one device and the context of its segments.
pub trait PageDriver: Sync {
    /// The driver's error code.
    type Error: Copy + Debug + Send;
    /// A recorded point in the context's work, cheap to copy.
    type Event: Copy + Debug + Send;

    /// The code for out-of-memory, for refusals of our own.
    const OUT_OF_MEMORY: Self::Error;

    /// Addresses without memory, aligned to [`PAGE`].
    ///
    /// # Errors
    /// The driver's.
    fn reserve(&self, bytes: u64) -> Result<u64, Self::Error>;

    /// Addresses back; nothing is mapped there.
    fn unreserve(&self, address: u64, bytes: u64);

    /// Memory of the device, of this size. Legal while a stream captures.
    ///
    /// # Errors
    /// The driver's; out of memory beyond the limit, too.
    fn create(&self, bytes: u64) -> Result<u64, Self::Error>;

    /// A page of the host's memory that the device can use. Legal while a stream captures.
    ///
    /// # Errors
    /// The driver's.
    fn create_on_host(&self) -> Result<u64, Self::Error>;

    /// Memory back; it is mapped nowhere.
    fn destroy(&self, handle: Handle);

    /// Puts memory at the address of a page, and of those behind it that it is large enough for. Legal while a stream captures.
    ///
    /// # Errors
    /// The driver's; nothing is mapped then.
    fn map(&self, address: u64, memory: Handle) -> Result<(), Self::Error>;

    /// Lets devices use neighbouring pieces that are mapped: the device itself, and those given. Legal while a stream
    /// captures.
    ///
    /// # Errors
    /// The driver's.
    fn allow(&self, address: u64, bytes: u64, others: &[i32]) -> Result<(), Self::Error>;

    /// Takes that from other devices.
    ///
    /// # Errors
    /// The driver's.
    fn forbid(&self, address: u64, bytes: u64, others: &[i32]) -> Result<(), Self::Error>;

    /// Takes memory that no work uses any more from its address. Legal while a stream captures.
    ///
    /// # Errors
    /// The driver's; it stays there then.
    fn unmap(&self, address: u64, memory: Handle) -> Result<(), Self::Error>;

    /// An event that completes when all work that was submitted so far and may use the segments has.
    ///
    /// # Errors
    /// The driver's.
    fn record(&self) -> Result<Self::Event, Self::Error>;

    /// Whether an event has completed.
    ///
    /// # Errors
    /// The driver's.
    fn is_complete(&self, event: Self::Event) -> Result<bool, Self::Error>;

    /// Waits on the host for an event.
    ///
    /// # Errors
    /// The driver's; also if it takes too long.
    fn wait(&self, event: Self::Event) -> Result<(), Self::Error>;

    /// The event is needed no more.
    fn retire(&self, event: Self::Event);

    /// Waits on the host for all work that may use the segments, as the driver's free does. Legal while a stream
    /// captures.
    ///
    /// # Errors
    /// The driver's.
    fn drain(&self) -> Result<(), Self::Error>;

    /// Bytes that [`PageDriver::create`] could give now.
    fn room(&self) -> u64;

    /// Has others in the process give back what they do not use. Whether they gave any.
    fn make_room(&self) -> bool;

    /// Has other processes give back what they do not use, where the device cannot give this many bytes. Whether they gave any.
    fn make_room_elsewhere(&self, bytes: u64) -> bool;
}
