//! Names that the driver has for addresses, contexts and streams.

/// A device address of the driver.
pub type Address = u64;

/// A CUDA context, by its handle. Blocks belong to one context and are reused within it only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Context(pub u64);

/// A stream, or all streams of a context or device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    /// Context of the stream; 0 for all of a device.
    pub context: Context,
    /// Driver's handle; [`Stream::LEGACY`], [`Stream::PER_THREAD`] or [`Stream::ALL`].
    pub handle: u64,
    /// Thread that owns the default stream, for [`Stream::PER_THREAD`]. Ordinal of the device, for
    /// [`Stream::all_of_device`]. Otherwise 0. As wide as the other fields: a copy would stall on a
    /// narrower one.
    pub thread: u64,
}

impl Stream {
    /// Handle `CU_STREAM_LEGACY` of the driver.
    pub const LEGACY: u64 = 1;
    /// Handle `CU_STREAM_PER_THREAD` of the driver.
    pub const PER_THREAD: u64 = 2;
    /// No particular stream: all work submitted to the context so far.
    pub const ALL: u64 = u64::MAX;

    /// True if later work of the stream always comes after its earlier work.
    pub fn is_ordered(&self) -> bool {
        self.handle != Self::ALL
    }

    /// All work submitted so far to any context of a device.
    pub fn all_of_device(device: i32) -> Self {
        Stream {
            context: Context(0),
            handle: Self::ALL,
            thread: u64::from(device.unsigned_abs()),
        }
    }

    /// All work submitted to a context so far.
    pub fn all_of(context: Context) -> Self {
        Stream {
            context,
            handle: Self::ALL,
            thread: 0,
        }
    }
}
