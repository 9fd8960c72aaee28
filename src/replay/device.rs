//! A device that serves a pool without being there: it counts what it gave and what the calls would have
//! cost.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::allocator::DriverTime;
use gpushim_alloc as alloc;
use gpushim_alloc::{Driver, Home, PoolId, Stream, pool};

/// The device of a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayDevice {
    /// The most bytes that can be held.
    pub limit: Option<u64>,
    /// How many requests the work of the device is behind the host.
    pub lag: u64,
    /// Of our policies: `GPUSHIM_REUSE`.
    pub reuse: alloc::Reuse,
    /// Of `vmm`: `GPUSHIM_PAGE`, bytes.
    pub page: u64,
    /// Of our policies: `GPUSHIM_CACHE_MAX`, bytes.
    pub cache_max: Option<u64>,
    /// Of our policies: `GPUSHIM_DECAY`, ns; 0 for never.
    pub decay: u64,
}

impl Default for ReplayDevice {
    fn default() -> ReplayDevice {
        ReplayDevice {
            limit: None,
            lag: 0,
            reuse: alloc::Reuse::default(),
            page: pool::Settings::default().page,
            cache_max: None,
            decay: 10_000_000_000,
        }
    }
}

/// A device on which nothing runs out, bytes: more than any has.
pub(super) const UNLIMITED: u64 = 1 << 46;

/// Memory beyond this size is given in whole pages of it, bytes: as an H100 does.
pub(super) const PAGE: u64 = 2 << 20;

/// What the calls of a driver take on the host, ns: medians of an H100, driver 580.
pub(super) mod price {
    /// `cuMemCreate`, and what each MiB adds.
    pub const CREATE: u64 = 11_000;
    pub const CREATE_MIB: u64 = 44;
    /// `cuMemRelease` of a handle.
    pub const DESTROY: u64 = 5_000;
    /// `cuMemMap`.
    pub const MAP: u64 = 600;
    /// `cuMemSetAccess`.
    pub const ALLOW: u64 = 20_000;
    /// `cuMemUnmap`.
    pub const UNMAP: u64 = 14_000;
    /// `cuMemAddressReserve`.
    pub const RESERVE: u64 = 1_000;
    /// `cuEventRecord`, `cuEventQuery`, `cuStreamWaitEvent`.
    pub const RECORD: u64 = 260;
    pub const QUERY: u64 = 180;
    pub const ORDER: u64 = 230;

    /// `cuMemAlloc`: 33 µs up to 20 MiB, 57 µs for 256 MiB, 130 µs for 1 GiB.
    pub fn allocate(bytes: u64) -> u64 {
        33_000 + (bytes >> 20).saturating_sub(20).saturating_mul(97)
    }

    /// `cuMemFree` of idle memory: 34 µs up to 20 MiB, 112 µs for 256 MiB, 329 µs for 1 GiB.
    pub fn release(bytes: u64) -> u64 {
        34_000 + (bytes >> 20).saturating_sub(20).saturating_mul(300)
    }
}

/// The simulated device. Its work is a fixed number of requests behind the host.
#[derive(Debug)]
pub struct Simulated {
    /// Bytes that may be held.
    capacity: AtomicU64,
    lag: u64,
    now: AtomicU64,
    next: AtomicU64,
    held: AtomicU64,
    /// Bytes of the device that this takes.
    taken: AtomicU64,
    calls: AtomicU64,
    ns: AtomicU64,
}

/// The simulated driver's only error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

impl Simulated {
    /// With `capacity` bytes, and GPU work `lag` requests behind.
    pub fn new(capacity: u64, lag: u64) -> Simulated {
        Simulated {
            capacity: AtomicU64::new(capacity),
            lag,
            now: AtomicU64::new(0),
            next: AtomicU64::new(1 << 44),
            held: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            ns: AtomicU64::new(0),
        }
    }

    fn capacity(&self) -> u64 {
        self.capacity.load(Relaxed)
    }

    /// Bytes that may be held from here on.
    pub fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Relaxed);
    }

    /// Bytes that can be had.
    fn free(&self) -> u64 {
        self.capacity().saturating_sub(self.taken())
    }

    /// The next addresses begin here.
    pub fn place_next(&self, address: u64) {
        self.next.store(address, Relaxed);
    }

    /// Advances the host by one request.
    pub fn advance(&self) {
        self.now.fetch_add(1, Relaxed);
    }

    /// Bytes that were got from it.
    pub fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// Bytes of the device that this takes.
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// The driver calls so far.
    pub fn driver_time(&self) -> DriverTime {
        DriverTime {
            calls: self.calls.load(Relaxed),
            ns: self.ns.load(Relaxed),
        }
    }

    fn pay(&self, ns: u64) {
        self.ns.fetch_add(ns, Relaxed);
    }

    fn call(&self, ns: u64) {
        self.calls.fetch_add(1, Relaxed);
        self.pay(ns);
    }

    /// Allocates bytes; more than a page takes whole pages of the device.
    fn take(&self, bytes: u64) -> Result<(), NoMemory> {
        let taken = self.taken.load(Relaxed).saturating_add(whole(bytes));
        if taken > self.capacity() {
            return Err(NoMemory);
        }
        self.taken.store(taken, Relaxed);
        self.held.fetch_add(bytes, Relaxed);
        Ok(())
    }

    fn put_back(&self, bytes: u64) {
        let less = |count: &AtomicU64, by: u64| {
            count.store(count.load(Relaxed).saturating_sub(by), Relaxed)
        };
        less(&self.taken, whole(bytes));
        less(&self.held, bytes);
    }

    fn addresses(&self, bytes: u64) -> u64 {
        self.next
            .fetch_add(bytes.max(1).next_multiple_of(PAGE), Relaxed)
    }

    fn is_done(&self, event: u64) -> bool {
        self.lag == 0 || event.saturating_add(self.lag) <= self.now.load(Relaxed)
    }
}

/// Bytes of the device that a driver allocation of this size takes.
fn whole(bytes: u64) -> u64 {
    if bytes > PAGE {
        bytes.checked_next_multiple_of(PAGE).unwrap_or(bytes)
    } else {
        bytes
    }
}

impl Driver for Simulated {
    type Error = NoMemory;
    type Event = u64;
    const OUT_OF_MEMORY: NoMemory = NoMemory;

    fn is_out_of_memory(_: NoMemory) -> bool {
        true
    }
    fn reserve(&self, _: i32, bytes: u64) -> Result<u64, NoMemory> {
        self.pay(price::RESERVE);
        Ok(self.addresses(bytes))
    }
    fn create(&self, _: i32, bytes: u64) -> Result<u64, NoMemory> {
        self.call(price::CREATE + (bytes >> 20).saturating_mul(price::CREATE_MIB));
        self.take(bytes)?;
        Ok(1)
    }
    fn destroy(&self, _: i32, _: u64, bytes: u64) {
        self.call(price::DESTROY);
        self.put_back(bytes);
    }
    fn map(&self, _: u64, _: u64, _: u64) -> Result<(), NoMemory> {
        self.call(price::MAP);
        Ok(())
    }
    fn allow(&self, _: u64, _: u64, _: &[i32]) -> Result<(), NoMemory> {
        self.call(price::ALLOW);
        Ok(())
    }
    fn forbid(&self, _: u64, _: u64, _: &[i32]) -> Result<(), NoMemory> {
        Ok(())
    }
    fn unmap(&self, _: u64, _: u64) -> Result<(), NoMemory> {
        self.call(price::UNMAP);
        Ok(())
    }
    fn allocate(&self, _: Home, bytes: u64) -> Result<u64, NoMemory> {
        self.call(price::allocate(bytes));
        self.take(bytes)?;
        Ok(self.addresses(bytes))
    }
    fn release(&self, _: Home, _: u64, bytes: u64) -> Result<(), NoMemory> {
        self.call(price::release(bytes));
        self.put_back(bytes);
        Ok(())
    }
    fn memory_info(&self, _: i32) -> Option<(u64, u64)> {
        Some((self.free(), self.capacity()))
    }
    fn record(&self, _: Stream) -> Result<u64, NoMemory> {
        self.pay(price::RECORD);
        Ok(self.now.load(Relaxed))
    }
    fn order(&self, _: Stream, _: u64) -> Result<(), NoMemory> {
        self.pay(price::ORDER);
        Ok(())
    }
    fn is_complete(&self, event: u64) -> Result<bool, NoMemory> {
        self.pay(price::QUERY);
        Ok(self.is_done(event))
    }
    fn wait(&self, _: u64) -> Result<(), NoMemory> {
        Ok(())
    }
    fn retire(&self, _: u64) {}
    fn admit(&self, _: i32, bytes: u64) -> bool {
        self.taken.load(Relaxed).saturating_add(bytes) <= self.capacity()
    }
    fn make_room(&self, _: PoolId, _: bool) -> bool {
        false
    }
    fn drain(&self, _: Stream) -> Result<(), NoMemory> {
        Ok(())
    }
    fn room(&self, _: i32) -> u64 {
        self.free()
    }
}
