//! What the driver calls things: addresses, contexts, streams.

/// A device address.
pub type Address = u64;

/// A CUDA context, by its handle. Blocks belong to one context and are reused within it only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Context(pub u64);

/// A stream, by what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    /// The context that it belongs to.
    pub context: Context,
    /// The driver's handle; [`Stream::LEGACY`], [`Stream::PER_THREAD`] or [`Stream::ALL`].
    pub handle: u64,
    /// The thread whose default stream it is, for [`Stream::PER_THREAD`]; the device, for
    /// [`Stream::all_of_device`]; else 0. As wide as the others: copying it would stall on a narrower one.
    pub thread: u64,
}

impl Stream {
    /// `CU_STREAM_LEGACY`.
    pub const LEGACY: u64 = 1;
    /// `CU_STREAM_PER_THREAD`.
    pub const PER_THREAD: u64 = 2;
    /// No stream in particular: everything that was submitted to the context so far.
    pub const ALL: u64 = u64::MAX;

    /// Whether later work of the stream comes after its earlier work by itself.
    pub fn is_ordered(&self) -> bool {
        self.handle != Self::ALL
    }

    /// Everything that was submitted to any context of a device so far.
    pub fn all_of_device(device: i32) -> Self {
        Stream {
            context: Context(0),
            handle: Self::ALL,
            thread: u64::from(device.unsigned_abs()),
        }
    }

    /// Everything that was submitted to a context so far.
    pub fn all_of(context: Context) -> Self {
        Stream {
            context,
            handle: Self::ALL,
            thread: 0,
        }
    }
}
