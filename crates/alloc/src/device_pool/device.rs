//! What the pool needs from a device: the driver in the shim, a simulation in tests and `replay`.

use crate::handles::{Address, Context};
use std::fmt::Debug;

/// The calls that the pool makes. It makes none of them with a lock held.
///
/// Every error is the driver's own code and reaches the caller unchanged.
pub trait Device: Sync {
    /// The driver's error code.
    type Error: Copy + Debug + Send;
    /// A recorded point in a context's work, cheap to copy.
    type Event: Copy + Debug + Send;

    /// The code for out-of-memory, for refusals that are not the driver's.
    const OUT_OF_MEMORY: Self::Error;

    /// Whether an error means that memory ran out, so that giving back the cache may help.
    fn is_out_of_memory(error: Self::Error) -> bool;

    /// Whether a call was refused because a stream captures.
    fn is_capture(_: Self::Error) -> bool {
        false
    }

    /// Tells an error that means that the call's context ends or has ended.
    /// Such a context has no work to wait for.
    fn is_end(_: Self::Error) -> bool {
        false
    }

    /// The ordinal of the device that the context is on.
    fn ordinal(&self, context: Context) -> Result<i32, Self::Error>;

    /// Memory from the driver. Legal while a stream captures.
    fn allocate(&self, context: Context, bytes: u64) -> Result<Address, Self::Error>;

    /// What tells a context from a later one with the same handle: asked when the pool first hears of it.
    fn born(&self) -> u64 {
        0
    }

    /// Memory back to the driver, which waits for the work of this context first, as `cuMemFree` does.
    /// Legal while a stream captures. Nothing happens if the context that was `born` then has ended: the
    /// address may be another's.
    fn release(
        &self,
        context: Context,
        born: u64,
        address: Address,
        bytes: u64,
    ) -> Result<(), Self::Error>;

    /// An event that completes when all work submitted to the context before this call has.
    ///
    /// `Ok(None)`: this driver has no such event; the pool synchronises the context instead.
    fn record(&self, context: Context) -> Result<Option<Self::Event>, Self::Error>;

    /// Makes all work submitted to the context after this call wait, on the device, for the event.
    fn order(&self, context: Context, event: Self::Event) -> Result<(), Self::Error>;

    /// Whether the event has completed. Never waits.
    fn is_complete(&self, event: Self::Event) -> Result<bool, Self::Error>;

    /// Waits on the host for the event. Legal while a stream captures.
    fn wait(&self, event: Self::Event) -> Result<(), Self::Error>;

    /// The pool no longer needs the event.
    fn retire(&self, event: Self::Event);

    /// Whether a stream of the context captures: all of its work cannot be waited for then.
    fn captures(&self, _: Context) -> bool {
        true
    }

    /// The captures because of which the driver would refuse the calling thread an allocation or a free,
    /// by the numbers that the pool knows them by.
    fn refusing(&self) -> Vec<u64> {
        Vec::new()
    }

    /// As [`Device::synchronize`], while a stream of the context captures.
    ///
    /// # Errors
    /// The driver's, or if that cannot be.
    fn drain(&self, _: Context) -> Result<(), Self::Error> {
        Err(Self::OUT_OF_MEMORY)
    }

    /// Waits on the host for all work of the context.
    fn synchronize(&self, context: Context) -> Result<(), Self::Error>;

    /// Waits on the host for all work of a context. The driver refuses that for ever where a capture was left that nothing
    /// can end any more, as that of a default stream whose thread has ended.
    fn finish(&self, context: Context) -> Result<(), Self::Error> {
        let wait_otherwise = |error| {
            let is_other = |second| !Self::is_capture(second) && !Self::is_out_of_memory(second);
            let of_work = |second| {
                if Self::is_capture(error) && is_other(second) {
                    second
                } else {
                    error
                }
            };
            self.drain(context).map_err(of_work)
        };
        self.synchronize(context).or_else(wait_otherwise)
    }

    /// Free and total bytes of the context's device, as the driver sees them.
    fn memory_info(&self, context: Context) -> Result<(u64, u64), Self::Error>;
}
