//! Interface of an allocator that serves recorded requests.

use gpushim_analysis::requests::{InitialState, Op, Request};

/// A request that did not fit into the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// Driver calls, and the time that they would have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DriverTime {
    /// Calls that get memory, map it or give it back.
    pub calls: u64,
    /// Nanoseconds of all calls, by the prices of an H100.
    pub ns: u64,
}

/// An allocator that serves recorded requests. The number from
/// [`Requests`](gpushim_analysis::requests::Requests) identifies a block.
pub trait Allocator {
    /// Announces the next requests. An allocator with many blocks can load their records into the
    /// CPU's cache.
    fn expect(&mut self, _next: &[Request]) {}

    /// Allocates a block.
    ///
    /// # Errors
    /// The block does not fit.
    fn allocate(&mut self, request: &Request) -> Result<(), OutOfMemory>;

    /// Frees a block that was allocated before.
    fn free(&mut self, request: &Request);

    /// Reports that streams have completed their work with a freed block. gpushim's pools need no
    /// report, since they order the next use of a block after that work.
    fn done(&mut self, _request: &Request) {}

    /// Releases cached memory on the program's request. Without a stream it releases all
    /// (`torch.cuda.empty_cache`). With a stream it releases the memory of the stream-ordered pool
    /// beyond the request's bytes.
    fn trim(&mut self, request: &Request);

    /// Serves a request of any kind.
    ///
    /// # Errors
    /// The block of an allocation does not fit.
    fn serve(&mut self, request: &Request) -> Result<(), OutOfMemory> {
        match request.op {
            Op::Allocate => return self.allocate(request),
            Op::Free => self.free(request),
            Op::Done => self.done(request),
            Op::Trim => self.trim(request),
        }
        Ok(())
    }

    /// Restores the state at the beginning of the recording. Returns false if the allocator does
    /// not support it; then it gets the blocks as requests.
    fn begin_with(&mut self, _given: &InitialState) -> bool {
        false
    }

    /// Number of bytes that are held from the driver.
    fn reserved(&self) -> u64;

    /// Bytes that this takes of the device. It exceeds [`Allocator::reserved`] where the driver
    /// allocates whole pages.
    fn taken(&self) -> u64 {
        self.reserved()
    }

    /// Size of the largest request that could be met without the driver, bytes.
    fn largest_free(&self) -> u64;

    /// Driver calls so far, and their time.
    fn driver_time(&self) -> DriverTime;
}
