//! A simulated device for the pools: it counts bytes and the time of driver calls.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::allocator::{DriverTime, OutOfMemory};
use gpushim_alloc as alloc;
use gpushim_alloc::{Driver, Home, PoolId, Stream, pool};

/// Device and settings of a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayDevice {
    /// Limit of the device memory, bytes; `None` for no limit.
    pub limit: Option<u64>,
    /// Number of requests by which the work of the device lags behind the host.
    pub lag: u64,
    /// `GPUSHIM_REUSE`, for gpushim's policies.
    pub reuse: alloc::Reuse,
    /// `GPUSHIM_PAGE`, for `vmm`, bytes.
    pub page: u64,
    /// `GPUSHIM_CACHE_MAX`, for gpushim's policies, bytes.
    pub cache_max: Option<u64>,
    /// `GPUSHIM_DECAY`, for gpushim's policies, ns; 0 for never.
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

/// Capacity of a device without a limit, bytes: more than any device has.
pub(super) const UNLIMITED: u64 = 1 << 46;

/// Page of the device, bytes. Larger allocations take whole pages, as on an H100.
pub(super) const PAGE: u64 = 2 << 20;

/// Host time of driver calls, ns: medians of an H100 with driver 580.
pub(super) mod price {
    /// `cuMemCreate`, and the addition for each MiB.
    pub const CREATE: u64 = 11_000;
    pub const CREATE_MIB: u64 = 44;
    /// `cuMemRelease` of a handle.
    pub const DESTROY: u64 = 5_000;
    /// Time of a call of `cuMemMap`.
    pub const MAP: u64 = 600;
    /// Time of `cuMemSetAccess`.
    pub const ALLOW: u64 = 20_000;
    /// Time of a call of `cuMemUnmap`.
    pub const UNMAP: u64 = 14_000;
    /// Time of `cuMemAddressReserve`.
    pub const RESERVE: u64 = 1_000;
    /// `cuEventRecord`, `cuEventQuery` and `cuStreamWaitEvent`.
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

/// A simulated device. Its work is a fixed number of requests behind the host.
#[derive(Debug)]
pub struct Simulated {
    /// Most bytes that can be taken.
    capacity: AtomicU64,
    lag: u64,
    now: AtomicU64,
    next: AtomicU64,
    held: AtomicU64,
    /// Bytes that the allocations take of the device, with the rest of their pages.
    taken: AtomicU64,
    calls: AtomicU64,
    ns: AtomicU64,
}

impl Simulated {
    /// Makes a device with `capacity` bytes, whose work is `lag` requests behind.
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

    /// Changes the capacity of the device.
    pub fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Relaxed);
    }

    /// Bytes that are left of the capacity.
    fn free(&self) -> u64 {
        self.capacity().saturating_sub(self.taken())
    }

    /// Advances the host by one request.
    pub fn advance(&self) {
        self.now.fetch_add(1, Relaxed);
    }

    /// Bytes of all allocations, as requested.
    pub fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// Bytes that the allocations take of the device, with the rest of their pages.
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Driver calls so far, and their time.
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

    /// Allocates bytes. An allocation of more than a page takes whole pages of the device.
    fn take(&self, bytes: u64) -> Result<(), OutOfMemory> {
        let taken = self.taken.load(Relaxed).saturating_add(whole(bytes));
        if taken > self.capacity() {
            return Err(OutOfMemory);
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
    type Error = OutOfMemory;
    type Event = u64;
    type Admission = ();
    const OUT_OF_MEMORY: OutOfMemory = OutOfMemory;

    fn is_out_of_memory(_: OutOfMemory) -> bool {
        true
    }
    fn reserve(&self, _: i32, bytes: u64) -> Result<u64, OutOfMemory> {
        self.pay(price::RESERVE);
        Ok(self.addresses(bytes))
    }
    fn create(&self, _: i32, bytes: u64) -> Result<u64, OutOfMemory> {
        self.call(price::CREATE + (bytes >> 20).saturating_mul(price::CREATE_MIB));
        self.take(bytes)?;
        Ok(1)
    }
    fn destroy(&self, _: i32, _: u64, bytes: u64) {
        self.call(price::DESTROY);
        self.put_back(bytes);
    }
    fn map(&self, _: u64, _: u64, _: u64) -> Result<(), OutOfMemory> {
        self.call(price::MAP);
        Ok(())
    }
    fn allow(&self, _: u64, _: u64, _: &[i32]) -> Result<(), OutOfMemory> {
        self.call(price::ALLOW);
        Ok(())
    }
    fn forbid(&self, _: u64, _: u64, _: &[i32]) -> Result<(), OutOfMemory> {
        Ok(())
    }
    fn unmap(&self, _: u64, _: u64) -> Result<(), OutOfMemory> {
        self.call(price::UNMAP);
        Ok(())
    }
    fn allocate(&self, _: Home, bytes: u64) -> Result<u64, OutOfMemory> {
        self.call(price::allocate(bytes));
        self.take(bytes)?;
        Ok(self.addresses(bytes))
    }
    fn release(&self, _: Home, _: u64, bytes: u64) -> Result<(), OutOfMemory> {
        self.call(price::release(bytes));
        self.put_back(bytes);
        Ok(())
    }
    fn memory_info(&self, _: i32) -> Option<(u64, u64)> {
        Some((self.free(), self.capacity()))
    }
    fn record(&self, _: Stream) -> Result<u64, OutOfMemory> {
        self.pay(price::RECORD);
        Ok(self.now.load(Relaxed))
    }
    fn order(&self, _: Stream, _: u64) -> Result<(), OutOfMemory> {
        self.pay(price::ORDER);
        Ok(())
    }
    fn is_complete(&self, event: u64) -> Result<bool, OutOfMemory> {
        self.pay(price::QUERY);
        Ok(self.is_done(event))
    }
    fn wait(&self, _: u64) -> Result<(), OutOfMemory> {
        Ok(())
    }
    fn retire(&self, _: u64) {}
    fn admit(&self, _: i32, bytes: u64) -> Option<()> {
        (self.taken.load(Relaxed).saturating_add(bytes) <= self.capacity()).then_some(())
    }
    fn make_room(&self, _: PoolId, _: bool) -> bool {
        false
    }
    fn drain(&self, _: Stream) -> Result<(), OutOfMemory> {
        Ok(())
    }
    fn room(&self, _: i32) -> u64 {
        self.free()
    }
}
