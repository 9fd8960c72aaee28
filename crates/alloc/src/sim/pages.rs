//! Calls of tests for a device with elastic segments and other users of its memory.

use super::memory::Part;
use super::{Clock, Inner, Sim};
use crate::elastic::PAGE;

/// Owners of memory: elastic segments, the host, and another library in the process. Other numbers
/// are pools'.
const SEGMENTS: usize = 0;
pub(super) const HOST: usize = usize::MAX;
const OTHERS: usize = usize::MAX - 1;

impl Inner {
    /// Bytes of the device that are held.
    pub fn on_device(&self) -> u64 {
        let host = self.memory.held.get(&HOST).map_or(0, |held| held.0);
        self.memory.total() - host
    }
}

impl Sim {
    /// Bytes of the device that are held.
    pub fn on_device(&self) -> u64 {
        self.inner.lock().on_device()
    }

    /// Sets the bytes of memory that the device has.
    pub fn set_capacity(&self, bytes: u64) {
        self.inner.lock().capacity = bytes;
    }

    /// Physical memory of a range.
    pub fn parts(&self, address: u64, bytes: u64) -> Result<Vec<Part>, String> {
        self.inner.lock().memory.resolve(address, bytes, 0)
    }

    /// True if the host finds all this work complete.
    pub fn has_finished(&self, clock: &Clock) -> bool {
        self.inner.lock().time.has_finished(clock)
    }

    /// Adds a finding, in words.
    pub fn note(&self, finding: impl Into<String>) {
        self.inner.lock().findings.push(finding.into());
    }

    /// True if the device has memory for another page.
    pub fn has_room(&self) -> bool {
        let inner = self.inner.lock();
        inner.on_device() + PAGE <= inner.capacity
    }

    /// Takes a page for another library. `None` if there is none.
    pub fn take(&self) -> Option<u64> {
        let mut inner = self.inner.lock();
        let fits = inner.on_device() + PAGE <= inner.capacity;
        fits.then(|| inner.memory.create(OTHERS, PAGE))
    }

    /// Gives a page of the other library back.
    pub fn give(&self, handle: u64) {
        let mut inner = self.inner.lock();
        let finding = inner.memory.destroy(handle, PAGE);
        inner.find(finding);
    }

    /// Ends the registration of a range's memory outside the process.
    pub fn unpin(&self, address: u64, bytes: u64) {
        let mut inner = self.inner.lock();
        let within = inner.memory.within(address, bytes).map(|(at, _)| *at);
        for at in within.collect::<Vec<_>>() {
            if let Some(mapping) = inner.memory.mappings.get_mut(&at) {
                mapping.pinned = false;
            }
        }
    }

    /// Bytes in pages of elastic segments: of the device, and of the host.
    pub fn in_pages(&self) -> (u64, u64) {
        (self.held(SEGMENTS).0, self.held(HOST).0)
    }
}
