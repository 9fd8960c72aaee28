//! Driver of the allocators that are not gpushim's: the held bytes, and the time of the calls.

use super::allocator::{DriverTime, OutOfMemory};
use super::device::price;

/// Bytes that are held from a device of limited size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes {
    capacity: u64,
    pub held: u64,
    pub time: DriverTime,
}

impl Bytes {
    /// Makes a device with `capacity` bytes.
    pub fn new(capacity: u64) -> Bytes {
        Bytes {
            capacity,
            held: 0,
            time: DriverTime::default(),
        }
    }

    /// Simulates a call of `cudaMalloc`.
    pub fn allocate(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        let held = self.hold(bytes);
        // A refused call takes the same time for any size.
        self.call(price::allocate(if held.is_ok() { bytes } else { 0 }));
        held
    }

    /// Simulates a call of `cudaFree`.
    pub fn release(&mut self, bytes: u64) {
        self.call(price::release(bytes));
        self.held = self.held.saturating_sub(bytes);
    }

    /// Creates, maps and enables pages of `page` bytes each. Does nothing if the capacity is too
    /// small for all.
    pub fn map(&mut self, bytes: u64, page: u64) -> Result<(), OutOfMemory> {
        self.hold(bytes)?;
        let pages = bytes.div_ceil(page.max(1));
        let create = price::CREATE.saturating_add((page >> 20).saturating_mul(price::CREATE_MIB));
        self.calls(pages, create);
        self.calls(pages, price::MAP);
        self.call(price::ALLOW);
        Ok(())
    }

    /// Unmaps and releases `bytes` bytes in pages of `page` bytes.
    pub fn unmap(&mut self, bytes: u64, page: u64) {
        let pages = bytes.div_ceil(page.max(1));
        self.calls(pages, price::UNMAP);
        self.calls(pages, price::DESTROY);
        self.held = self.held.saturating_sub(bytes);
    }

    /// True if this many bytes fit into the capacity.
    pub fn has(&self, bytes: u64) -> bool {
        self.held.saturating_add(bytes) <= self.capacity
    }

    /// Capacity of the device, bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    fn call(&mut self, ns: u64) {
        self.calls(1, ns);
    }

    /// Adds `count` driver calls of `ns` ns each.
    fn calls(&mut self, count: u64, ns: u64) {
        self.time.calls = self.time.calls.saturating_add(count);
        self.time.ns = self.time.ns.saturating_add(ns.saturating_mul(count));
    }

    /// Adds bytes that were reserved when the recording began.
    pub fn had(&mut self, bytes: u64) {
        self.held = self.held.saturating_add(bytes);
    }

    fn hold(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        if !self.has(bytes) {
            return Err(OutOfMemory);
        }
        self.held = self.held.saturating_add(bytes);
        Ok(())
    }
}
