//! The driver, as pools call it.

use std::fmt::Debug;
use std::time::Duration;

use crate::handles::{Context, Stream};

/// A context of this process, told apart from a later one with the same handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its handle.
    pub context: Context,
    /// Number of contexts that had ended when it was first seen, by [`gate::ends`](crate::gate::ends).
    pub born: u64,
}

/// Which pool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId {
    /// The ordinal of its device.
    pub device: i32,
    /// Tells it apart from every other pool of the process.
    pub number: u64,
}

/// The calls that a pool makes; none with its lock held. Errors are the driver's own codes.
pub trait Driver: Sync + Sized {
    /// The driver's error code.
    type Error: Copy + Debug + Send;
    /// A recorded point in a stream's work, cheap to copy.
    type Event: Copy + Debug + Send;

    /// The code for out-of-memory, for refusals that are the pool's own.
    const OUT_OF_MEMORY: Self::Error;

    /// Whether an error means that memory ran out.
    fn is_out_of_memory(error: Self::Error) -> bool;

    /// Whether an error of a call about pieces means that there will be none: neither that memory ran
    /// out, nor that the context is at fault.
    fn is_refusal(error: Self::Error) -> bool {
        let _ = error;
        false
    }

    /// Whether a device has `bytes` free bytes and a good deal more, and this process may have them. False if that is not
    /// known.
    fn has_plenty(&self, device: i32, bytes: u64) -> bool {
        let _ = (device, bytes);
        false
    }

    /// Whether a device refuses a piece of `bytes` bytes while it has memory. False if the memory has only just become
    /// free, as when another process gave it back. Takes up to 25 ms.
    fn refuses(&self, device: i32, bytes: u64) -> bool {
        // The driver may report memory as free a moment before it can be allocated.
        const LOOKS: usize = 5;
        const PAUSE: Duration = Duration::from_millis(5);
        for _ in 0..LOOKS {
            if !self.has_plenty(device, bytes) {
                return false;
            }
            match self.create(device, bytes) {
                Ok(piece) => {
                    self.destroy(device, piece, bytes);
                    return false;
                }
                Err(error) if Self::is_out_of_memory(error) => std::thread::sleep(PAUSE),
                Err(_) => return false,
            }
        }
        true
    }

    /// Addresses without memory behind them, aligned to 2 MiB.
    fn reserve(&self, device: i32, bytes: u64) -> Result<u64, Self::Error>;

    /// Addresses that [`Driver::reserve`] returned, with nothing mapped there, go back.
    fn unreserve(&self, address: u64, bytes: u64) {
        let _ = (address, bytes);
    }

    /// A piece of physical memory: its handle.
    fn create(&self, device: i32, bytes: u64) -> Result<u64, Self::Error>;

    /// A piece of physical memory, which is mapped nowhere, ends.
    fn destroy(&self, device: i32, handle: u64, bytes: u64);

    /// Puts a piece of memory at an address, beside other places where it may be.
    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), Self::Error>;

    /// Lets devices, each by its ordinal, use what is mapped in a range.
    fn allow(&self, address: u64, bytes: u64, devices: &[i32]) -> Result<(), Self::Error>;

    /// Takes the use of what is mapped in a range from devices.
    fn forbid(&self, address: u64, bytes: u64, devices: &[i32]) -> Result<(), Self::Error>;

    /// Takes memory away from an address. Does not wait for anything.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), Self::Error>;

    /// The address of a driver allocation in a context. Legal while a stream captures.
    ///
    /// # Errors
    /// The driver's.
    fn allocate(&self, home: Home, bytes: u64) -> Result<u64, Self::Error>;

    /// Frees a driver allocation. Waits for the work of its context. Legal while a stream captures.
    ///
    /// # Errors
    /// The driver's, or if the context has ended: the address may be another's then.
    fn release(&self, home: Home, address: u64, bytes: u64) -> Result<(), Self::Error>;

    /// Free and total bytes of a device; `None` if the driver does not answer.
    fn memory_info(&self, device: i32) -> Option<(u64, u64)> {
        let _ = device;
        None
    }

    /// An event that completes when all work submitted to the stream before this call has.
    /// One of [`Stream::all_of_device`] outlives each context.
    fn record(&self, stream: Stream) -> Result<Self::Event, Self::Error>;

    /// As [`Driver::record`], while streams capture.
    ///
    /// # Errors
    /// Also if the stream captures, or if its event would disturb one that does.
    fn record_beside(&self, stream: Stream) -> Result<Self::Event, Self::Error> {
        let _ = stream;
        Err(Self::OUT_OF_MEMORY)
    }

    /// As [`Driver::wait`], while streams capture.
    ///
    /// # Errors
    /// The driver's.
    fn wait_beside(&self, event: Self::Event) -> Result<(), Self::Error> {
        self.wait(event)
    }

    /// Waits on the host, while streams capture, until all work is over that was submitted to the stream's
    /// context so far, and to others that may use its memory.
    ///
    /// # Errors
    /// The driver's, or if that cannot be.
    fn drain(&self, stream: Stream) -> Result<(), Self::Error> {
        let _ = stream;
        Err(Self::OUT_OF_MEMORY)
    }

    /// Makes all work submitted to the stream after this call wait for the event.
    fn order(&self, stream: Stream, event: Self::Event) -> Result<(), Self::Error>;

    /// Whether the event has completed. Never waits.
    fn is_complete(&self, event: Self::Event) -> Result<bool, Self::Error>;

    /// Waits on the host for the event.
    fn wait(&self, event: Self::Event) -> Result<(), Self::Error>;

    /// The pool no longer needs the event.
    fn retire(&self, event: Self::Event);

    /// Waits on the host for the event, some seconds at most: the work may wait for the calling thread.
    ///
    /// # Errors
    /// The driver's; [`Driver::OUT_OF_MEMORY`] if it takes longer.
    fn wait_briefly(&self, event: Self::Event) -> Result<(), Self::Error> {
        self.wait(event)
    }

    /// Memory of the host that a device can use: its handle. Legal while a stream captures.
    ///
    /// # Errors
    /// The driver's, or if there is none.
    fn create_on_host(&self, device: i32, bytes: u64) -> Result<u64, Self::Error> {
        let _ = (device, bytes);
        Err(Self::OUT_OF_MEMORY)
    }

    /// Memory of the host, which is mapped nowhere, ends.
    fn destroy_on_host(&self, device: i32, handle: u64, bytes: u64) {
        let _ = (device, handle, bytes);
    }

    /// Bytes that [`Driver::create`] could give now, on a device.
    fn room(&self, device: i32) -> u64 {
        let _ = device;
        u64::MAX
    }

    /// Has other processes give back what they do not use of a device, where it cannot give this many bytes. True if they
    /// gave any.
    fn make_room_elsewhere(&self, device: i32, bytes: u64) -> bool {
        let _ = (device, bytes);
        false
    }

    /// Whether this process may hold `bytes` bytes more on a device.
    fn admit(&self, device: i32, bytes: u64) -> bool;

    /// Gives back what other caches of this process hold on a pool's device; `waits`: also what work
    /// still uses, after that. True if that was anything.
    fn make_room(&self, asking: PoolId, waits: bool) -> bool;
}
