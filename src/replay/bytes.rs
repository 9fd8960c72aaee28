//! The driver below an allocator that is not ours: how much it gave, and what that cost.

use super::allocator::{DriverTime, OutOfMemory};
use super::device::price;

/// Bytes held from a device of limited size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes {
    capacity: u64,
    pub held: u64,
    pub time: DriverTime,
}

impl Bytes {
    /// Of a device with `capacity` bytes.
    pub fn new(capacity: u64) -> Bytes {
        Bytes {
            capacity,
            held: 0,
            time: DriverTime::default(),
        }
    }

    /// `cudaMalloc`.
    pub fn allocate(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        let held = self.hold(bytes);
        // A refused call takes the same time for any size.
        self.call(price::allocate(if held.is_ok() { bytes } else { 0 }));
        held
    }

    /// `cudaFree`.
    pub fn release(&mut self, bytes: u64) {
        self.call(price::release(bytes));
        self.held = self.held.saturating_sub(bytes);
    }

    /// Creates, maps and enables pages of `page` bytes each; none if there is no room for all.
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

    /// Whether this many bytes are left.
    pub fn has(&self, bytes: u64) -> bool {
        self.held.saturating_add(bytes) <= self.capacity
    }

    /// The most that can be held.
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
