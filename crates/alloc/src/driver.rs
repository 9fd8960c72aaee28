//! The driver, as pools call it.

use std::fmt::Debug;
use std::time::Duration;

use crate::handles::{Context, Stream};

/// A context of this process, told apart from a later one with the same handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// Driver handle of the context.
    pub context: Context,
    /// Value of [`gate::ends`](crate::gate::ends) when the context was first seen.
    pub born: u64,
}

/// Identity of a pool in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId {
    /// Ordinal of the pool's device.
    pub device: i32,
    /// Number of the pool, unique in the process.
    pub number: u64,
}

/// Calls that a pool makes, none with its lock held. Errors are the driver's own codes.
pub trait Driver: Sync + Sized {
    /// The driver's error code.
    type Error: Copy + Debug + Send;
    /// A recorded point in a stream's work, cheap to copy.
    type Event: Copy + Debug + Send;
    /// Bytes that a thread may create; the rest is given back when it is dropped.
    type Admission;

    /// Error code for out-of-memory, also for the pool's own refusals.
    const OUT_OF_MEMORY: Self::Error;

    /// True if an error means that memory ran out.
    fn is_out_of_memory(error: Self::Error) -> bool;

    /// True if an error of a call about pieces means that the driver will never grant any. False if
    /// memory ran out, or if the error is the context's.
    fn is_refusal(error: Self::Error) -> bool {
        let _ = error;
        false
    }

    /// True if a device has `bytes` free bytes and a good deal more, and this process may allocate
    /// them. False if that is not known.
    fn has_plenty(&self, device: i32, bytes: u64) -> bool {
        let _ = (device, bytes);
        false
    }

    /// True if a device refuses a piece of `bytes` bytes although it has memory. False if the
    /// memory has only just become free, as when another process gave it back. Takes up to 25 ms.
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

    /// Reserves addresses without memory behind them, aligned to 2 MiB.
    fn reserve(&self, device: i32, bytes: u64) -> Result<u64, Self::Error>;

    /// Gives addresses back that [`Driver::reserve`] returned, with nothing mapped there.
    fn unreserve(&self, address: u64, bytes: u64) {
        let _ = (address, bytes);
    }

    /// Creates a piece of physical memory and returns its handle.
    fn create(&self, device: i32, bytes: u64) -> Result<u64, Self::Error>;

    /// Destroys a piece of physical memory that is mapped nowhere.
    fn destroy(&self, device: i32, handle: u64, bytes: u64);

    /// Maps a piece of memory at an address. It may be mapped at other addresses, too.
    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), Self::Error>;

    /// Allows devices, by ordinal, to use the memory mapped in a range.
    fn allow(&self, address: u64, bytes: u64, devices: &[i32]) -> Result<(), Self::Error>;

    /// Forbids devices, by ordinal, to use the memory mapped in a range.
    fn forbid(&self, address: u64, bytes: u64, devices: &[i32]) -> Result<(), Self::Error>;

    /// Unmaps the memory at an address. Does not wait for anything.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), Self::Error>;

    /// Makes a driver allocation in a context and returns its address. Legal while a stream
    /// captures.
    ///
    /// # Errors
    /// The driver's error.
    fn allocate(&self, home: Home, bytes: u64) -> Result<u64, Self::Error>;

    /// Frees a driver allocation. Waits for the work of its context. Legal while a stream captures.
    ///
    /// # Errors
    /// The driver's error, or any error if the context has ended: the address may then be another
    /// allocation's.
    fn release(&self, home: Home, address: u64, bytes: u64) -> Result<(), Self::Error>;

    /// Free and total bytes of a device; `None` if the driver does not answer.
    fn memory_info(&self, device: i32) -> Option<(u64, u64)> {
        let _ = device;
        None
    }

    /// Records an event that completes when all work submitted to the stream before this call has.
    /// An event of [`Stream::all_of_device`] outlives each context.
    fn record(&self, stream: Stream) -> Result<Self::Event, Self::Error>;

    /// Records an event as [`Driver::record`] does, while streams capture.
    ///
    /// # Errors
    /// Also if the stream captures, or if its event would disturb a stream that does.
    fn record_beside(&self, stream: Stream) -> Result<Self::Event, Self::Error> {
        let _ = stream;
        Err(Self::OUT_OF_MEMORY)
    }

    /// Waits for an event as [`Driver::wait`] does, while streams capture.
    ///
    /// # Errors
    /// The driver's error.
    fn wait_beside(&self, event: Self::Event) -> Result<(), Self::Error> {
        self.wait(event)
    }

    /// Waits on the host, while streams capture, until all work of the stream's context so far is
    /// complete. Also waits for other contexts that may use its memory.
    ///
    /// # Errors
    /// The driver's error, or any error if it cannot wait.
    fn drain(&self, stream: Stream) -> Result<(), Self::Error> {
        let _ = stream;
        Err(Self::OUT_OF_MEMORY)
    }

    /// Makes all work submitted to the stream after this call wait for the event.
    fn order(&self, stream: Stream, event: Self::Event) -> Result<(), Self::Error>;

    /// True if the event has completed. Never waits.
    fn is_complete(&self, event: Self::Event) -> Result<bool, Self::Error>;

    /// Waits on the host for the event.
    fn wait(&self, event: Self::Event) -> Result<(), Self::Error>;

    /// Takes an event back that the pool no longer needs.
    fn retire(&self, event: Self::Event);

    /// Waits on the host for the event, at most some seconds: the work may wait for the calling
    /// thread.
    ///
    /// # Errors
    /// The driver's error; [`Driver::OUT_OF_MEMORY`] if the wait takes longer.
    fn wait_briefly(&self, event: Self::Event) -> Result<(), Self::Error> {
        self.wait(event)
    }

    /// Allocates host memory that a device can use, and returns its handle. Legal while a stream
    /// captures.
    ///
    /// # Errors
    /// The driver's error, or any error if there is no such memory.
    fn create_on_host(&self, device: i32, bytes: u64) -> Result<u64, Self::Error> {
        let _ = (device, bytes);
        Err(Self::OUT_OF_MEMORY)
    }

    /// Frees host memory that is mapped nowhere.
    fn destroy_on_host(&self, device: i32, handle: u64, bytes: u64) {
        let _ = (device, handle, bytes);
    }

    /// Bytes that [`Driver::create`] could provide now on a device.
    fn room(&self, device: i32) -> u64 {
        let _ = device;
        u64::MAX
    }

    /// Makes peer processes give unused memory of a device back, if the device cannot provide this
    /// many bytes. True if they gave any.
    fn make_room_elsewhere(&self, device: i32, bytes: u64) -> bool {
        let _ = (device, bytes);
        false
    }

    /// Admits `bytes` bytes more of a device to this process. While the result lives, this thread
    /// may create them, whatever other threads and processes ask for. `None`: the process may not
    /// hold them.
    fn admit(&self, device: i32, bytes: u64) -> Option<Self::Admission>;

    /// Gives back memory that other caches of this process hold on a pool's device. With `waits`,
    /// first waits for the work that still uses it. True if any memory was given back.
    fn make_room(&self, asking: PoolId, waits: bool) -> bool;
}
