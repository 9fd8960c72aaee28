//! gpushim's policies: the pools of the shim over a simulated device.

use super::allocator::{Allocator, DriverTime, OutOfMemory};
use super::device::{ReplayDevice, Simulated, UNLIMITED};
use gpushim_alloc::pool::{Backing, Pool, Settings};
use gpushim_alloc::{Context, Grant, Home, Policy, Reuse, Stream, TICKS_TO_DECAY};
use gpushim_analysis::requests::{Op, Request};

/// The only context of a replay.
const CONTEXT: Context = Context(1);
/// Handle of the legacy default stream, which is 0 in a recording.
const DEFAULT_STREAM: u64 = Stream::LEGACY;

/// Number of blocks in a run above which the live ones may exceed the CPU's caches.
const LARGE: u32 = 50_000;

/// Pools of one process under the shim.
pub struct GpushimAllocator {
    device: Simulated,
    /// Pool in pages, for streams, and under `vmm` also for `cudaMalloc`.
    pages: Pool<Simulated>,
    /// Pool for `cudaMalloc` under the other policies.
    whole: Option<Pool<Simulated>>,
    /// Most bytes that `cudaMalloc` may cache.
    cache_max: Option<u64>,
    /// Address of each block, by its number; 0 if it is not live.
    places: Vec<u64>,
    /// Addresses of blocks that are freed soon.
    soon: Vec<u64>,
    /// True if the live blocks may exceed the CPU's caches.
    is_large: bool,
    /// Time between ticks of the background thread, ns; 0 for no ticks.
    tick: u64,
    /// Time of the next tick, ns.
    next: u64,
}

impl GpushimAllocator {
    /// Makes the pools of a policy on a device, for `blocks` blocks.
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

    /// Advances the clock to `ns` and releases cached memory that was unused for the decay time.
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

    fn grant(&self, request: &Request) -> Result<Grant, OutOfMemory> {
        self.pool(request)
            .allocate(&self.device, stream(request), request.bytes)
    }

    /// Returns the pool that serves a request.
    fn pool(&self, request: &Request) -> &Pool<Simulated> {
        match &self.whole {
            Some(whole) if request.stream.is_none() => whole,
            _ => &self.pages,
        }
    }

    /// Releases the cached memory of `cudaMalloc` beyond `GPUSHIM_CACHE_MAX`.
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
        // As in the shim, a request fails only after all pools have released their cached memory.
        let grant = self.grant(request).or_else(|_| {
            self.give_back();
            self.grant(request)
        })?;
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
        // The address is of a live block of this pool, so the call succeeds.
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
