//! The driver as elastic segments of a device see it: memory in pages, and events for all work that may use them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use gpushim_alloc::elastic::{Handle, PAGE, PageDriver};
use gpushim_alloc::{Context, Driver, Stream};
use gpushim_trace::{Class, Kind};

use crate::base::thread;
use crate::cuda::device::{self, Event};
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, OUT_OF_MEMORY, SUCCESS};
use crate::memory::caches::Asking;
use crate::memory::{budget, peer_processes, physical, room};
use crate::record::events;

/// `CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID`.
const HOST_NODE: i32 = 134;

/// Free memory of the device that is not promised to segments: the driver needs some of its own.
const MARGIN: u64 = 16 << 20;

/// How long a request waits for work of the device before it gets memory of the host: that work may wait for the thread.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two looks after the first ones.
const PAUSE: Duration = Duration::from_micros(20);
/// How long the first looks follow each other without a pause.
const EAGER: Duration = Duration::from_micros(200);

/// A device, and the context in which its segments were asked for.
pub struct Pages {
    pub device: i32,
    pub context: Context,
    /// Bytes of the device's memory that are held.
    held: AtomicU64,
    /// How often an announcement or a request waited for work of the device, and for how many nanoseconds.
    waits: AtomicU64,
    waited_ns: AtomicU64,
    /// How many events were recorded, and in how many nanoseconds.
    events: AtomicU64,
    events_ns: AtomicU64,
}

impl Pages {
    /// Nothing is held yet.
    pub fn new(device: i32, context: Context) -> Pages {
        Pages {
            device,
            context,
            held: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            events: AtomicU64::new(0),
            events_ns: AtomicU64::new(0),
        }
    }

    /// Bytes of the device's memory that are held.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// How often work of the device was waited for, and for how long.
    pub fn waits(&self) -> (u64, Duration) {
        read(&self.waits, &self.waited_ns)
    }

    /// How many events were recorded, and in what time.
    pub fn events(&self) -> (u64, Duration) {
        read(&self.events, &self.events_ns)
    }

    /// Counts a call that waits.
    fn waiting<R>(&self, wait: impl FnOnce() -> R) -> R {
        timed(&self.waits, &self.waited_ns, wait)
    }

    fn ordinal(&self) -> u8 {
        self.device as u8
    }

    /// All work that may use the segments.
    fn all(&self) -> Stream {
        Stream::all_of(self.context)
    }

    /// Its device and others.
    fn with(&self, others: &[i32]) -> Vec<i32> {
        [&[self.device], others].concat()
    }

    /// The node of the host that is nearest to the device.
    fn host_node(&self) -> i32 {
        let mut node = 0;
        // SAFETY: `node` is ours to write.
        let ask = || unsafe { real::cuDeviceGetAttribute(&mut node, HOST_NODE, self.device) };
        match thread::call(ask) {
            SUCCESS => node.max(0),
            _ => 0,
        }
    }
}

/// Counts a call and its time.
fn timed<R>(count: &AtomicU64, sum: &AtomicU64, call: impl FnOnce() -> R) -> R {
    let begun = Instant::now();
    let result = call();
    let ns = begun.elapsed().as_nanos() as u64;
    count.fetch_add(1, Ordering::Relaxed);
    sum.fetch_add(ns, Ordering::Relaxed);
    result
}

fn read(count: &AtomicU64, ns: &AtomicU64) -> (u64, Duration) {
    let time = Duration::from_nanos(ns.load(Ordering::Relaxed));
    (count.load(Ordering::Relaxed), time)
}

impl PageDriver for Pages {
    type Error = CUresult;
    type Event = Event;
    const OUT_OF_MEMORY: CUresult = OUT_OF_MEMORY;

    fn reserve(&self, bytes: u64) -> Result<u64, CUresult> {
        Driver::reserve(device::driver(), self.device, bytes)
    }

    fn unreserve(&self, address: u64, bytes: u64) {
        Driver::unreserve(device::driver(), address, bytes);
    }

    fn create(&self, bytes: u64) -> Result<u64, CUresult> {
        let handle = Driver::create(device::driver(), self.device, bytes)?;
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(handle)
    }

    fn create_on_host(&self) -> Result<u64, CUresult> {
        let handle = physical::create_on_host(self.device, self.host_node(), PAGE)?;
        events::forwarded(Kind::Alloc, Class::Host, self.ordinal(), handle, PAGE, 0);
        Ok(handle)
    }

    fn destroy(&self, handle: Handle) {
        let number = handle.number;
        if !handle.is_host {
            Driver::destroy(device::driver(), self.device, number, handle.bytes);
            self.held.fetch_sub(handle.bytes, Ordering::Relaxed);
            return;
        }
        let in_trace = events::leaving(Class::Host, number);
        physical::destroy_on_host(number);
        match in_trace {
            Some(_) => events::forwarded(Kind::Free, Class::Host, self.ordinal(), number, PAGE, 0),
            None => events::left(Class::Host, self.ordinal(), PAGE),
        }
    }

    fn map(&self, address: u64, memory: Handle) -> Result<(), CUresult> {
        Driver::map(device::driver(), address, memory.bytes, memory.number)
    }

    fn allow(&self, address: u64, bytes: u64, others: &[i32]) -> Result<(), CUresult> {
        Driver::allow(device::driver(), address, bytes, &self.with(others))
    }

    fn forbid(&self, address: u64, bytes: u64, others: &[i32]) -> Result<(), CUresult> {
        Driver::forbid(device::driver(), address, bytes, others)
    }

    fn unmap(&self, address: u64, memory: Handle) -> Result<(), CUresult> {
        Driver::unmap(device::driver(), address, memory.bytes)
    }

    fn record(&self) -> Result<Event, CUresult> {
        timed(&self.events, &self.events_ns, || {
            Driver::record(device::driver(), self.all())
        })
    }

    fn is_complete(&self, event: Event) -> Result<bool, CUresult> {
        Driver::is_complete(device::driver(), event)
    }

    fn wait(&self, event: Event) -> Result<(), CUresult> {
        self.waiting(|| {
            let begun = Instant::now();
            // The driver's own wait has no end.
            while !self.is_complete(event)? {
                match begun.elapsed() {
                    long if long > PATIENCE => return Err(OUT_OF_MEMORY),
                    short if short < EAGER => yield_now(),
                    _ => sleep(PAUSE),
                }
            }
            Ok(())
        })
    }

    fn retire(&self, event: Event) {
        Driver::retire(device::driver(), event);
    }

    fn drain(&self) -> Result<(), CUresult> {
        self.waiting(|| Driver::drain(device::driver(), self.all()))
    }

    fn room(&self) -> u64 {
        let free = device::driver().free_bytes(self.device).unwrap_or(0);
        let room = free.saturating_sub(MARGIN);
        match budget::limit() {
            Some(limit) => room.min(limit.saturating_sub(budget::held(self.device))),
            None => room,
        }
    }

    fn make_room(&self) -> bool {
        room::make_room(Asking::Segments, Some(self.device)) > 0
    }

    fn make_room_elsewhere(&self, bytes: u64) -> bool {
        budget::fits(self.device, bytes) && peer_processes::make_room(self.device, bytes)
    }
}
