//! Our own policies: the code that runs in the shim, over a simulated device.

use super::device::Simulated;
use super::requests::Request;
use super::{Allocator, DriverTime, OutOfMemory};
use crate::mempool::{self, Layout, MemPool, Stream};
use crate::pool::{self, Context, Pool, Reuse};

/// The one context that there is.
const CONTEXT: Context = Context(1);
/// Stands for the legacy default stream where a recording says 0.
const DEFAULT_STREAM: u64 = Stream::LEGACY;

/// The pool of the `cudaMalloc` family and that of streams, as in one process under the shim.
pub struct Ours {
    plain: Pool<Simulated>,
    ordered: MemPool<Simulated>,
    /// Whether pages serve the `cudaMalloc` family, too.
    is_paged: bool,
    /// Where each block is, by its number; 0: nowhere.
    places: Vec<u64>,
}

impl Ours {
    /// With these settings for the two pools, which hold no more than the device has together.
    pub fn new(
        device: Simulated,
        plain: pool::Settings,
        ordered: mempool::Settings,
        blocks: u32,
    ) -> Ours {
        let is_paged = plain.policy == pool::Policy::Vmm;
        let ordered = mempool::Settings {
            orders: plain.reuse == Reuse::Order,
            waits: plain.reuse != Reuse::Order,
            ..ordered
        };
        Ours {
            plain: Pool::new(device, plain),
            ordered: MemPool::new(0, ordered),
            is_paged,
            places: vec![0; blocks as usize],
        }
    }

    fn is_plain(&self, request: &Request) -> bool {
        request.stream.is_none() && !self.is_paged
    }
}

/// The layout of a stream-ordered pool under a policy.
pub(super) fn layout(policy: pool::Policy) -> Layout {
    match policy {
        pool::Policy::Vmm => Layout::Pages,
        pool::Policy::Segments => Layout::Segments,
        pool::Policy::Blocks | pool::Policy::Off => Layout::Whole,
        pool::Policy::Bins => Layout::Bins,
    }
}

fn stream(request: &Request) -> Stream {
    let (handle, thread) = match request.stream {
        None => (Stream::EVERY, 0),
        Some(0) => (DEFAULT_STREAM, 0),
        Some(Stream::PER_THREAD) => (Stream::PER_THREAD, request.thread.into()),
        Some(handle) => (handle, 0),
    };
    Stream {
        context: CONTEXT,
        handle,
        thread,
    }
}

impl Allocator for Ours {
    fn allocate(&mut self, request: &Request) -> Result<(), OutOfMemory> {
        let device = self.plain.device();
        device.advance();
        let grant = if self.is_plain(request) {
            let hit = self.plain.try_allocate(CONTEXT, request.bytes);
            hit.map_or_else(|| self.plain.allocate(CONTEXT, request.bytes), Ok)
        } else {
            let stream = stream(request);
            let hit = self.ordered.try_allocate(stream, request.bytes);
            hit.map_or_else(|| self.ordered.allocate(device, stream, request.bytes), Ok)
        };
        let grant = grant.map_err(|_| OutOfMemory)?;
        if let Some(place) = self.places.get_mut(request.block as usize) {
            *place = grant.address;
        }
        Ok(())
    }

    fn free(&mut self, request: &Request) {
        self.plain.device().advance();
        let place = self.places.get_mut(request.block as usize);
        let Some(address) = place.map(std::mem::take).filter(|address| *address != 0) else {
            return;
        };
        // Both know the address: it is theirs, and live.
        if self.is_plain(request) {
            let _ = self.plain.free(address, |_| ());
        } else {
            let _ = self.ordered.free(stream(request), address, |_| ());
        }
    }

    fn trim(&mut self) {
        self.ordered.trim(self.plain.device(), 0);
        self.plain.trim(None, 0);
    }

    fn reserved(&self) -> u64 {
        self.plain.device().held()
    }

    fn taken(&self) -> u64 {
        self.plain.device().taken()
    }

    fn largest_free(&self) -> u64 {
        self.plain.largest_free(0).max(self.ordered.largest_free())
    }

    fn driver_time(&self) -> DriverTime {
        self.plain.device().driver_time()
    }
}
