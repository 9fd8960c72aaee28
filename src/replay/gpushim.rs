//! Our own policies: the code that runs in the shim, over a simulated device.

use super::allocator::{Allocator, DriverTime, OutOfMemory};
use super::device::{NoMemory, Simulated};
use super::device::{ReplayDevice, UNLIMITED};
use crate::requests::{Op, Request};
use gpushim_alloc as alloc;
use gpushim_alloc::device_pool::{self, DevicePool};
use gpushim_alloc::stream_pool::{self, StreamPool};
use gpushim_alloc::{Context, Grant, Reuse, Stream, TICKS_TO_DECAY};

/// The one context that there is.
const CONTEXT: Context = Context(1);
/// Stands for the legacy default stream where a recording says 0.
const DEFAULT_STREAM: u64 = Stream::LEGACY;

/// Blocks of a run of which so many may be live that no cache has them.
const LARGE: u32 = 50_000;

/// The pool of the `cudaMalloc` family and that of streams, as in one process under the shim.
pub struct GpushimAllocator {
    plain: DevicePool<Simulated>,
    ordered: StreamPool<Simulated>,
    /// True if `ordered` serves both families, as it does in pages.
    serves_all: bool,
    /// Where each block is, by its number; 0: nowhere.
    places: Vec<u64>,
    /// Where the blocks are that are freed soon.
    soon: Vec<u64>,
    /// Whether no cache has all blocks that are live.
    is_large: bool,
    /// Ns from one tick of the background thread to the next; 0: no ticks.
    tick: u64,
    /// When the next tick is, ns.
    next: u64,
}

impl GpushimAllocator {
    /// Pools of a policy on a device, for `blocks` blocks.
    pub fn new(device: &ReplayDevice, policy: alloc::Policy, blocks: u32) -> GpushimAllocator {
        let settings = device_pool::Settings {
            reuse: device.reuse,
            cache_max: device.cache_max,
            ..device_pool::Settings::default()
        };
        let orders = device.reuse == Reuse::Order;
        let ordered = stream_pool::Settings {
            policy,
            page: device.page,
            orders,
            waits: !orders,
            reuse: device.reuse,
            ..stream_pool::Settings::default()
        };
        let simulated = Simulated::new(device.limit.unwrap_or(UNLIMITED), device.lag);
        GpushimAllocator {
            plain: DevicePool::new(simulated, settings),
            serves_all: policy == alloc::Policy::Vmm,
            ordered: StreamPool::new(0, ordered),
            places: vec![0; blocks as usize],
            soon: Vec::new(),
            is_large: blocks > LARGE,
            tick: device.decay / u64::from(TICKS_TO_DECAY),
            next: device.decay / u64::from(TICKS_TO_DECAY),
        }
    }

    /// Advances the clock to `ns`: cached memory that was not used for the decay is released.
    fn advance(&mut self, ns: u64) {
        self.plain.device().advance();
        // After this many ticks without requests no cached memory is left.
        for _ in 0..=TICKS_TO_DECAY {
            if self.tick == 0 || ns < self.next {
                return;
            }
            self.next = self.next.saturating_add(self.tick);
            self.plain.decay();
            self.ordered.decay(self.plain.device());
        }
        self.next = ns.saturating_add(self.tick);
    }

    fn give_back(&self) {
        self.ordered.trim(self.plain.device(), 0);
        self.plain.trim(None, 0);
    }

    fn serve(&self, request: &Request) -> Result<Grant, NoMemory> {
        match self.pool(request) {
            None => {
                let hit = self.plain.try_allocate(CONTEXT, request.bytes);
                hit.map_or_else(|| self.plain.allocate(CONTEXT, request.bytes), Ok)
            }
            Some(pool) => pool.allocate(self.plain.device(), stream(request), request.bytes),
        }
    }

    /// The pool of pages or streams that serves a request; `None`: that of `cudaMalloc` does.
    fn pool(&self, request: &Request) -> Option<&StreamPool<Simulated>> {
        (self.serves_all || request.stream.is_some()).then_some(&self.ordered)
    }
}

fn stream(request: &Request) -> Stream {
    let (handle, thread) = match request.stream {
        None => (Stream::ALL, 0),
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

impl Allocator for GpushimAllocator {
    fn expect(&mut self, next: &[Request]) {
        if !self.is_large {
            return;
        }
        let frees = next.iter().filter(|request| request.op == Op::Free);
        let freed = frees.filter_map(|request| self.places.get(request.block as usize));
        self.soon.clear();
        self.soon.extend(freed.filter(|place| **place != 0));
        self.ordered.warm(&self.soon);
    }

    fn allocate(&mut self, request: &Request) -> Result<(), OutOfMemory> {
        self.advance(request.ns);
        // As in the shim, nothing is refused while another pool holds what is free.
        let grant = self.serve(request).or_else(|_| {
            self.give_back();
            self.serve(request)
        });
        let grant = grant.map_err(|_| OutOfMemory)?;
        if let Some(place) = self.places.get_mut(request.block as usize) {
            *place = grant.address;
        }
        Ok(())
    }

    fn free(&mut self, request: &Request) {
        self.advance(request.ns);
        let place = self.places.get_mut(request.block as usize);
        let Some(address) = place.map(std::mem::take).filter(|address| *address != 0) else {
            return;
        };
        // Both know the address: it is theirs, and live.
        match self.pool(request) {
            None => {
                let _ = self.plain.free(address, |_| ());
            }
            Some(pool) => {
                let _ = pool.free(stream(request), address, |_| ());
            }
        }
    }

    fn trim(&mut self, request: &Request) {
        match request.stream {
            None => self.give_back(),
            Some(_) => {
                self.ordered
                    .trim_streams(self.plain.device(), request.bytes);
            }
        }
    }

    fn reserved(&self) -> u64 {
        self.plain.device().held()
    }

    fn taken(&self) -> u64 {
        self.plain.device().taken()
    }

    fn largest_free(&self) -> u64 {
        let largest = self.plain.largest_free(0);
        largest.max(self.ordered.largest_free())
    }

    fn driver_time(&self) -> DriverTime {
        self.plain.device().driver_time()
    }
}
