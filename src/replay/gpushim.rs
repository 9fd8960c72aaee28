//! Our own policies: the code that runs in the shim, over a simulated device.

use super::allocator::{Allocator, DriverTime, OutOfMemory};
use super::device::{NoMemory, Simulated};
use super::device::{ReplayDevice, UNLIMITED};
use crate::requests::{Op, Request};
use gpushim_alloc::pool::{Backing, Pool, Settings};
use gpushim_alloc::{Context, Grant, Home, Policy, Reuse, Stream, TICKS_TO_DECAY};

/// The one context that there is.
const CONTEXT: Context = Context(1);
/// Stands for the legacy default stream where a recording says 0.
const DEFAULT_STREAM: u64 = Stream::LEGACY;

/// Blocks of a run of which so many may be live that no cache has them.
const LARGE: u32 = 50_000;

/// The pools of one process under the shim.
pub struct GpushimAllocator {
    device: Simulated,
    /// In pages: of streams, and of `cudaMalloc` under `vmm`.
    pages: Pool<Simulated>,
    /// Of `cudaMalloc` otherwise.
    whole: Option<Pool<Simulated>>,
    /// Bytes that `cudaMalloc` may have cached.
    cache_max: Option<u64>,
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
    pub fn new(device: &ReplayDevice, policy: Policy, blocks: u32) -> GpushimAllocator {
        let orders = device.reuse == Reuse::Order;
        let pages = Settings {
            page: device.page,
            orders,
            waits: !orders,
            reuse: device.reuse,
            ..Settings::default()
        };
        let home = Home {
            context: CONTEXT,
            born: 0,
        };
        let whole = Settings {
            backing: Backing::Whole(home),
            ..pages.clone()
        };
        GpushimAllocator {
            device: Simulated::new(device.limit.unwrap_or(UNLIMITED), device.lag),
            pages: Pool::new(0, pages),
            whole: (policy != Policy::Vmm).then(|| Pool::new(0, whole)),
            cache_max: device.cache_max,
            places: vec![0; blocks as usize],
            soon: Vec::new(),
            is_large: blocks > LARGE,
            tick: device.decay / u64::from(TICKS_TO_DECAY),
            next: device.decay / u64::from(TICKS_TO_DECAY),
        }
    }

    /// Advances the clock to `ns`: cached memory that was not used for the decay is released.
    fn advance(&mut self, ns: u64) {
        self.device.advance();
        // After this many ticks without requests no cached memory is left.
        for _ in 0..=TICKS_TO_DECAY {
            if self.tick == 0 || ns < self.next {
                return;
            }
            self.next = self.next.saturating_add(self.tick);
            for pool in self.pools() {
                pool.decay(&self.device);
            }
        }
        self.next = ns.saturating_add(self.tick);
    }

    fn pools(&self) -> impl Iterator<Item = &Pool<Simulated>> {
        [&self.pages].into_iter().chain(&self.whole)
    }

    fn give_back(&self) {
        for pool in self.pools() {
            pool.trim(&self.device, 0);
        }
    }

    fn serve(&self, request: &Request) -> Result<Grant, NoMemory> {
        self.pool(request)
            .allocate(&self.device, stream(request), request.bytes)
    }

    /// The pool that serves a request.
    fn pool(&self, request: &Request) -> &Pool<Simulated> {
        match &self.whole {
            Some(whole) if request.stream.is_none() => whole,
            _ => &self.pages,
        }
    }

    /// Gives back what `cudaMalloc` has cached beyond its most.
    fn keep_at_most(&self, pool: &Pool<Simulated>) {
        let Some(most) = self.cache_max else { return };
        let stats = pool.stats();
        let cached = match pool.is_pages() {
            true => stats.cached_for_all(),
            false => stats.cached(),
        };
        let surplus = cached.saturating_sub(most);
        if surplus > 0 {
            pool.trim(&self.device, stats.reserved.saturating_sub(surplus));
        }
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
        self.pages.warm(&self.soon);
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
        let pool = self.pool(request);
        // It knows the address, of a live block.
        let _ = pool.free(stream(request), address, |_| ());
        if request.stream.is_none() {
            self.keep_at_most(pool);
        }
    }

    fn trim(&mut self, request: &Request) {
        match request.stream {
            None => self.give_back(),
            Some(_) => {
                self.pages.trim_streams(&self.device, request.bytes);
            }
        }
    }

    fn reserved(&self) -> u64 {
        self.device.held()
    }

    fn taken(&self) -> u64 {
        self.device.taken()
    }

    fn largest_free(&self) -> u64 {
        let largest = self.pools().map(Pool::largest_free);
        largest.max().unwrap_or(0)
    }

    fn driver_time(&self) -> DriverTime {
        self.device.driver_time()
    }
}
