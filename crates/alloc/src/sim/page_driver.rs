//! The driver's calls about pages, as the simulated device answers them.

use super::memory::Part;
use super::{Call, Clock, Error, Event, Inner, Sim};
use crate::elastic::{Handle, PAGE, PageDriver};
use crate::handles::{Context, Stream};
use std::sync::Arc;

/// Whose the memory is: of elastic segments, of the host, and of another library in the process.
const PAGES: usize = 0;
const HOST: usize = 1;
const OTHERS: usize = 2;

/// Elastic segments' way to the device.
pub struct Pages {
    pub sim: Arc<Sim>,
    pub context: Context,
}

impl Pages {
    fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.sim.inner.lock())
    }

    fn all(&self) -> Stream {
        Stream::all_of(self.context)
    }
}

impl Inner {
    fn on_device(&self) -> u64 {
        let host = self.memory.held.get(&HOST).map_or(0, |held| held.0);
        self.memory.total() - host
    }

    fn piece(&mut self, of: usize, bytes: u64) -> Result<u64, Error> {
        self.enter(of, Call::Create)?;
        if of != HOST && self.on_device() + bytes > self.capacity {
            return Err(Error::OutOfMemory);
        }
        Ok(self.memory.create(of, bytes))
    }
}

impl Sim {
    /// Bytes of the device that are held.
    pub fn on_device(&self) -> u64 {
        self.inner.lock().on_device()
    }

    /// Bytes that the device has from here on.
    pub fn set_capacity(&self, bytes: u64) {
        self.inner.lock().capacity = bytes;
    }

    /// The physical memory at a range.
    pub fn parts(&self, address: u64, bytes: u64) -> Result<Vec<Part>, String> {
        self.inner.lock().memory.resolve(address, bytes, 0)
    }

    /// Whether the host finds all this to be over.
    pub fn has_finished(&self, clock: &Clock) -> bool {
        self.inner.lock().time.has_finished(clock)
    }

    /// Adds to what went wrong.
    pub fn note(&self, finding: impl Into<String>) {
        self.inner.lock().findings.push(finding.into());
    }

    /// Whether another page could be made.
    pub fn has_room(&self) -> bool {
        let inner = self.inner.lock();
        inner.on_device() + PAGE <= inner.capacity
    }

    /// Another library takes a page; `None`: there is none.
    pub fn take(&self) -> Option<u64> {
        let mut inner = self.inner.lock();
        let fits = inner.on_device() + PAGE <= inner.capacity;
        fits.then(|| inner.memory.create(OTHERS, PAGE))
    }

    /// That library gives a page back.
    pub fn give(&self, handle: u64) {
        let mut inner = self.inner.lock();
        let finding = inner.memory.destroy(handle, PAGE);
        inner.find(finding);
    }

    /// What is mapped in a range is registered outside the process no more.
    pub fn unpin(&self, address: u64, bytes: u64) {
        let mut inner = self.inner.lock();
        let within = inner.memory.within(address, bytes).map(|(at, _)| *at);
        for at in within.collect::<Vec<_>>() {
            if let Some(mapping) = inner.memory.mappings.get_mut(&at) {
                mapping.pinned = false;
            }
        }
    }

    /// Bytes in pages: of the device, and of the host.
    pub fn in_pages(&self) -> (u64, u64) {
        (self.held(PAGES).0, self.held(HOST).0)
    }
}

impl PageDriver for Pages {
    type Error = Error;
    type Event = Event;
    const OUT_OF_MEMORY: Error = Error::OutOfMemory;

    fn reserve(&self, bytes: u64) -> Result<u64, Error> {
        self.with(|sim| {
            sim.enter(PAGES, Call::Reserve)?;
            Ok(sim.memory.reserve(bytes))
        })
    }

    fn unreserve(&self, address: u64, bytes: u64) {
        self.with(|sim| {
            let finding = sim.memory.unreserve(address, bytes);
            sim.find(finding);
        });
    }

    fn create(&self, bytes: u64) -> Result<u64, Error> {
        self.with(|sim| sim.piece(PAGES, bytes))
    }

    fn create_on_host(&self) -> Result<u64, Error> {
        self.with(|sim| sim.piece(HOST, PAGE))
    }

    fn destroy(&self, handle: Handle) {
        self.with(|sim| {
            let of = if handle.is_host { HOST } else { PAGES };
            if !sim.memory.is_of(handle.number, of) {
                sim.findings
                    .push("host memory is taken for the device's".into());
            }
            let finding = sim.memory.destroy(handle.number, handle.bytes);
            sim.find(finding);
        });
    }

    fn map(&self, address: u64, memory: Handle) -> Result<(), Error> {
        self.with(|sim| {
            sim.enter(PAGES, Call::Map)?;
            let finding = sim.memory.map(address, memory.bytes, memory.number);
            sim.find(finding);
            Ok(())
        })
    }

    fn allow(&self, address: u64, bytes: u64, others: &[i32]) -> Result<(), Error> {
        self.with(|sim| {
            sim.enter(PAGES, Call::Allow)?;
            let mask = others.iter().fold(1, |mask, device| mask | 1 << device);
            sim.set_access(address, bytes, |access| *access |= mask);
            Ok(())
        })
    }

    fn forbid(&self, address: u64, bytes: u64, others: &[i32]) -> Result<(), Error> {
        self.with(|sim| {
            sim.enter(PAGES, Call::Forbid)?;
            let mask = others.iter().fold(0, |mask, device| mask | 1 << device);
            sim.set_access(address, bytes, |access| *access &= !mask);
            Ok(())
        })
    }

    fn unmap(&self, address: u64, memory: Handle) -> Result<(), Error> {
        self.with(|sim| {
            sim.enter(PAGES, Call::Unmap)?;
            sim.vanish(address, memory.bytes);
            let finding = sim.memory.unmap(address, memory.bytes);
            sim.find(finding);
            Ok(())
        })
    }

    fn record(&self) -> Result<Event, Error> {
        self.with(|sim| {
            sim.capturable(Call::Record, Some(self.all()));
            let lies = sim.enter(PAGES, Call::Record)?;
            let clock = sim.time.now(self.all()).ok_or(Error::Failed)?;
            let clock = if lies { Clock::default() } else { clock };
            Ok(Event(sim.time.record(self.context, clock)))
        })
    }

    fn is_complete(&self, event: Event) -> Result<bool, Error> {
        self.with(|sim| {
            sim.capturable(Call::Query, None);
            let clock = sim.event(event)?;
            let lies = sim.enter(PAGES, Call::Query)?;
            let complete = lies || sim.time.has_finished(&clock);
            sim.prune();
            Ok(complete)
        })
    }

    fn wait(&self, event: Event) -> Result<(), Error> {
        self.with(|sim| {
            sim.capturable(Call::Wait, None);
            let clock = sim.event(event)?;
            if !sim.enter(PAGES, Call::Wait)? {
                sim.time.finish(&clock);
                sim.prune();
            }
            Ok(())
        })
    }

    fn retire(&self, event: Event) {
        self.with(|sim| {
            if !sim.time.retire(event.0) {
                sim.findings.push("an event is retired twice".into());
            }
        });
    }

    fn drain(&self) -> Result<(), Error> {
        self.with(|sim| {
            let clock = sim.time.now(self.all()).ok_or(Error::Failed)?;
            if !sim.enter(PAGES, Call::Drain)? {
                sim.time.finish(&clock);
                sim.prune();
            }
            Ok(())
        })
    }

    fn room(&self) -> u64 {
        self.with(|sim| sim.capacity.saturating_sub(sim.on_device()))
    }

    fn make_room(&self) -> bool {
        false
    }

    fn make_room_elsewhere(&self, _: u64) -> bool {
        false
    }
}
