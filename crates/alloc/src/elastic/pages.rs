//! Driver calls for the segments of one device in one context.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::driver::{Driver, PoolId};
use crate::handles::{Context, Stream};

/// Bytes of a page: the smallest physical memory that the driver makes.
pub const PAGE: u64 = 2 << 20;

/// A piece of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The driver's number for it.
    pub number: u64,
    /// Its size, a multiple of [`PAGE`].
    pub bytes: u64,
    /// True for memory of the host, which the device reaches more slowly.
    pub is_host: bool,
}

/// Number of calls, and their time in nanoseconds.
#[derive(Default)]
struct Calls {
    count: AtomicU64,
    ns: AtomicU64,
}

impl Calls {
    fn timed<R>(&self, call: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let result = call();
        let ns = begun.elapsed().as_nanos() as u64;
        self.count.fetch_add(1, Ordering::Relaxed);
        self.ns.fetch_add(ns, Ordering::Relaxed);
        result
    }

    fn read(&self) -> (u64, Duration) {
        let time = Duration::from_nanos(self.ns.load(Ordering::Relaxed));
        (self.count.load(Ordering::Relaxed), time)
    }
}

/// The device of segments, and their context.
pub struct Pages<D> {
    /// The driver that all calls go to.
    pub driver: D,
    /// The ordinal of the device.
    pub device: i32,
    /// The context in which the segments were asked for.
    pub context: Context,
    /// Bytes of the device's memory that are held.
    held: AtomicU64,
    waits: Calls,
    events: Calls,
}

impl<D> Pages<D> {
    pub(super) fn new(driver: D, device: i32, context: Context) -> Self {
        Pages {
            driver,
            device,
            context,
            held: AtomicU64::new(0),
            waits: Calls::default(),
            events: Calls::default(),
        }
    }

    /// Bytes of the device's memory that are held.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Number of waits for work of the device, and their time.
    pub fn waits(&self) -> (u64, Duration) {
        self.waits.read()
    }

    /// Number of events that were recorded, and the time that this took.
    pub fn events(&self) -> (u64, Duration) {
        self.events.read()
    }

    /// Identifies these segments when the process looks for memory.
    pub fn id(&self) -> PoolId {
        PoolId {
            device: self.device,
            number: std::ptr::from_ref(self).addr() as u64,
        }
    }

    /// Stands for all work that may use the segments.
    fn all(&self) -> Stream {
        Stream::all_of(self.context)
    }
}

impl<D: Driver> Pages<D> {
    pub(super) fn reserve(&self, bytes: u64) -> Result<u64, D::Error> {
        self.driver.reserve(self.device, bytes)
    }

    pub(super) fn unreserve(&self, address: u64, bytes: u64) {
        self.driver.unreserve(address, bytes);
    }

    pub(super) fn create(&self, bytes: u64) -> Result<u64, D::Error> {
        let handle = self.driver.create(self.device, bytes)?;
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(handle)
    }

    /// Claims bytes that [`Pages::create`] gets while the result lives. `None`: the process may not
    /// hold them.
    pub(super) fn admit(&self, bytes: u64) -> Option<D::Admission> {
        self.driver.admit(self.device, bytes)
    }

    /// Creates a page of the host's memory.
    pub(super) fn create_on_host(&self) -> Result<u64, D::Error> {
        self.driver.create_on_host(self.device, PAGE)
    }

    pub(super) fn destroy(&self, handle: Handle) {
        let (number, bytes) = (handle.number, handle.bytes);
        if handle.is_host {
            return self.driver.destroy_on_host(self.device, number, bytes);
        }
        self.driver.destroy(self.device, number, bytes);
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn map(&self, address: u64, memory: Handle) -> Result<(), D::Error> {
        self.driver.map(address, memory.bytes, memory.number)
    }

    /// Lets the device of the pages and the devices `others` access adjacent mapped pieces.
    pub(super) fn allow(&self, address: u64, bytes: u64, others: &[i32]) -> Result<(), D::Error> {
        let devices = [&[self.device], others].concat();
        self.driver.allow(address, bytes, &devices)
    }

    pub(super) fn forbid(&self, address: u64, bytes: u64, others: &[i32]) -> Result<(), D::Error> {
        self.driver.forbid(address, bytes, others)
    }

    pub(super) fn unmap(&self, address: u64, memory: Handle) -> Result<(), D::Error> {
        self.driver.unmap(address, memory.bytes)
    }

    /// Records an event behind all work submitted so far that may use the segments.
    pub(super) fn record(&self) -> Result<D::Event, D::Error> {
        self.events.timed(|| self.driver.record(self.all()))
    }

    pub(super) fn is_complete(&self, event: D::Event) -> Result<bool, D::Error> {
        self.driver.is_complete(event)
    }

    pub(super) fn wait(&self, event: D::Event) -> Result<(), D::Error> {
        self.waits.timed(|| self.driver.wait_briefly(event))
    }

    pub(super) fn retire(&self, event: D::Event) {
        self.driver.retire(event);
    }

    /// Waits on the host for all work that may use the segments, as the driver's free does.
    pub(super) fn drain(&self) -> Result<(), D::Error> {
        self.waits.timed(|| self.driver.drain(self.all()))
    }

    /// Bytes that [`Pages::create`] could get now.
    pub(super) fn room(&self) -> u64 {
        self.driver.room(self.device)
    }

    /// Asks the process's other holders of memory to free unused memory. True if they freed any.
    pub(super) fn make_room(&self) -> bool {
        self.driver.make_room(self.id(), true)
    }

    /// Asks other processes to free unused memory if the device cannot give this many bytes. True
    /// if they freed any.
    pub(super) fn make_room_elsewhere(&self, bytes: u64) -> bool {
        self.driver.make_room_elsewhere(self.device, bytes)
    }
}
