//! What serves recorded requests.

use crate::requests::{InitialState, Request};

/// A request that could not be met within the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// What calls of the driver there were, and how long they would have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DriverTime {
    /// Calls that get memory, map it or give it back.
    pub calls: u64,
    /// Nanoseconds of all calls, by the prices of an H100.
    pub ns: u64,
}

/// An allocator that serves recorded requests. Each block is named by the number that
/// [`Requests`](crate::requests::Requests) gave it.
pub trait Allocator {
    /// These requests come next. Whoever has much memory can have it ready for them.
    fn expect(&mut self, _next: &[Request]) {}

    /// A block is asked for.
    ///
    /// # Errors
    /// There is no room for it.
    fn allocate(&mut self, request: &Request) -> Result<(), OutOfMemory>;

    /// A block that was handed out comes back.
    fn free(&mut self, request: &Request);

    /// Streams are done with a block that came back while they used it. Our own pools order what comes next after
    /// them, and know it free before.
    fn done(&mut self, _request: &Request) {}

    /// The program asked for cached memory to be given back: all (`torch.cuda.empty_cache`), or with a stream what the
    /// stream-ordered pool holds beyond this many bytes.
    fn trim(&mut self, request: &Request);

    /// Restores the state at the beginning of the recording; false if this allocator does not and gets requests
    /// instead.
    fn begin_with(&mut self, _given: &InitialState) -> bool {
        false
    }

    /// Bytes held from the driver now.
    fn reserved(&self) -> u64;

    /// Bytes of the device that this takes: the driver gives more than it was asked for where it gives whole pages.
    fn taken(&self) -> u64 {
        self.reserved()
    }

    /// Bytes of the largest request that could be met without the driver.
    fn largest_free(&self) -> u64;

    /// What the driver had to do so far.
    fn driver_time(&self) -> DriverTime;
}
