//! The device that the pools are tested on. It only watches the physical memory that work uses: the
//! memory must not be reused or taken away under that work.
//!
//! Streams complete their work at moments that the test chooses. A pool must rely on the order of
//! streams, events and host waits, not on work that happens to be complete. A missing order is
//! found even if it does no harm in a run.

mod clock;
mod driver;
mod memory;
mod mistake;
mod pages;
mod watch;

pub use clock::Clock;
pub use driver::{Probe, World};
pub use memory::overlap;
pub use mistake::Mistake;

use crate::handles::Context;
use crate::handles::Stream;
use clock::Time;
use memory::{ALLOCATIONS, Memory, Part};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Error codes, as the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No memory is left on the device.
    OutOfMemory,
    /// Any failure but out-of-memory.
    Failed,
}

/// A recorded point of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Event(u64);

/// Calls that can be made to fail or to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Reserve,
    Create,
    Map,
    Allow,
    Forbid,
    Unmap,
    Allocate,
    Release,
    Record,
    Order,
    Query,
    Wait,
    /// A wait for all work of a context while streams capture.
    Drain,
    /// An `Allow` for devices other than the memory's own.
    AllowPeers,
    /// An `Allow` where some device already has access.
    AllowAgain,
    /// An `Unmap` of a piece that moves.
    UnmapMoved,
    /// An `Unmap` of a piece that is also mapped elsewhere.
    UnmapTwin,
    /// A driver call while a pool's lock is held.
    Locked,
}

/// Memory in use: begin, bytes, and the number of its allocation.
pub type Use = (u64, u64, u64);

struct Work {
    stream: usize,
    number: u64,
    uses: Vec<(Use, Vec<Part>)>,
}

#[derive(Default)]
struct Inner {
    /// Bytes of the device, and the bytes of it that the process may hold.
    capacity: u64,
    limit: u64,
    time: Time,
    memory: Memory,
    works: Vec<Work>,
    granted: u64,
    capturing: Vec<Stream>,
    /// Devices that may use driver allocations, one bit each.
    peers: u8,
    findings: Vec<String>,
    calls: HashMap<(usize, Call), u64>,
    /// Number of times that each pool moved a piece or mapped it again.
    moved: HashMap<usize, u64>,
    failing: Option<(Call, u64, Error)>,
    /// Call that claims success and has no effect.
    lying: Option<Call>,
}

/// The simulated device, and one peer device.
#[derive(Default)]
pub struct Sim {
    inner: Mutex<Inner>,
}

impl Sim {
    /// Makes devices with `capacity` bytes of memory each, of which a process may hold `limit`.
    pub fn new(capacity: u64, limit: u64) -> Self {
        let sim = Sim::default();
        let mut inner = sim.inner.lock();
        (inner.capacity, inner.limit, inner.peers) = (capacity, limit, 1);
        drop(inner);
        sim
    }

    /// Makes every n-th such call fail, or none.
    pub fn fail(&self, failing: Option<(Call, u64, Error)>) {
        self.inner.lock().failing = failing;
    }

    /// Makes such calls succeed without any effect.
    pub fn lie(&self, call: Option<Call>) {
        self.inner.lock().lying = call;
    }

    pub fn add_context(&self, context: Context, device: i32) {
        self.inner.lock().time.add_context(context, device);
    }

    /// Lets the work of one context use the memory of another.
    pub fn add_peer(&self, owner: Context, accessor: Context) {
        self.inner.lock().time.add_peer(owner, accessor);
    }

    /// Other contexts whose work may use the memory of a context.
    pub fn accessors(&self, owner: Context) -> Vec<Context> {
        self.inner.lock().time.accessors(owner)
    }

    /// Ends a context with its streams and their work.
    pub fn end_context(&self, context: Context) {
        let mut inner = self.inner.lock();
        inner.time.end_context(context);
        inner.prune();
    }

    /// Ends the driver allocations of all pools, and the work on them, as with their context.
    pub fn end_allocations(&self) {
        let mut inner = self.inner.lock();
        inner.works.clear();
        let gone = inner.memory.mappings.split_off(&ALLOCATIONS);
        for (address, mapping) in gone {
            inner.memory.grants.remove(&address);
            let _ = inner.memory.destroy(mapping.handle, mapping.bytes);
        }
    }

    /// Lets the other device use driver allocations, as the program may.
    pub fn let_peers(&self) {
        let mut inner = self.inner.lock();
        inner.peers = 3;
        let mappings = inner.memory.mappings.values_mut();
        mappings.for_each(|mapping| mapping.access |= 3);
    }

    pub fn add_stream(&self, stream: Stream) {
        self.inner.lock().time.add_stream(stream);
    }

    pub fn end_stream(&self, stream: Stream) {
        self.inner.lock().time.end_stream(stream);
    }

    pub fn capture_begin(&self, stream: Stream) {
        self.inner.lock().capturing.push(stream);
    }

    pub fn capture_end(&self, stream: Stream) {
        self.inner.lock().capturing.retain(|other| *other != stream);
    }

    /// All work submitted to a stream so far.
    pub fn now(&self, stream: Stream) -> Clock {
        self.inner.lock().time.now(stream).unwrap_or_default()
    }

    /// All work submitted to a context so far.
    pub fn of_context(&self, context: Context) -> Clock {
        self.inner.lock().time.of_context(context)
    }

    /// Orders the later work of a stream behind this.
    pub fn order_after(&self, stream: Stream, clock: &Clock) {
        self.inner.lock().time.order(stream, clock);
    }

    /// Records that the host waited for this.
    pub fn synchronized(&self, clock: &Clock) {
        let mut inner = self.inner.lock();
        inner.time.finish(clock);
        inner.prune();
    }

    /// Completes a piece of work on the n-th stream that can do so.
    pub fn step(&self, n: usize) {
        self.inner.lock().time.step(n);
    }

    /// Completes all work; the host does not know.
    pub fn finish_unseen(&self) {
        self.inner.lock().time.finish_unseen();
    }

    /// Records an allocation by a pool. Returns its number.
    pub fn granted(&self, address: u64, bytes: u64) -> u64 {
        self.inner.lock().granted(address, bytes)
    }

    /// Records that the program freed memory.
    pub fn returned(&self, address: u64) {
        self.inner.lock().memory.grants.remove(&address);
    }

    /// Ends an allocation with its context, whatever work still uses it.
    pub fn lost(&self, address: u64, number: u64) {
        let mut inner = self.inner.lock();
        inner.memory.grants.remove(&address);
        for work in &mut inner.works {
            work.uses.retain(|(used, _)| used.2 != number);
        }
    }

    /// Registers the memory in a range outside the process.
    pub fn pin(&self, address: u64, bytes: u64) {
        let mut inner = self.inner.lock();
        let within = inner.memory.within(address, bytes).map(|(at, _)| *at);
        for at in within.collect::<Vec<_>>() {
            if let Some(mapping) = inner.memory.mappings.get_mut(&at) {
                mapping.pinned = true;
            }
        }
    }

    /// Submits work that uses memory.
    pub fn launch(&self, stream: Stream, uses: &[Use]) {
        self.inner.lock().launch(stream, uses);
    }

    /// Replays a graph: its memory must not have been reused.
    pub fn replay(&self, stream: Stream, uses: &[Use]) {
        let mut inner = self.inner.lock();
        inner.check_replay(uses);
        inner.launch(stream, uses);
    }

    /// Mistakes found so far, in words.
    pub fn findings(&self) -> Vec<String> {
        self.inner.lock().findings.clone()
    }

    /// Number of calls that a pool made.
    pub fn calls(&self, pool: usize, call: Call) -> u64 {
        let inner = self.inner.lock();
        inner.calls.get(&(pool, call)).copied().unwrap_or(0)
    }

    /// Number of times that a pool moved a piece or mapped it again.
    pub fn moves(&self, pool: usize) -> u64 {
        self.inner.lock().moved.get(&pool).copied().unwrap_or(0)
    }

    /// Starts to count anew for a pool.
    pub fn forget(&self, pool: usize) {
        let mut inner = self.inner.lock();
        inner.calls.retain(|(of, _), _| *of != pool);
        inner.moved.remove(&pool);
        inner.memory.held.remove(&pool);
    }

    /// Bytes that a pool holds, and their peak.
    pub fn held(&self, pool: usize) -> (u64, u64) {
        let inner = self.inner.lock();
        inner.memory.held.get(&pool).copied().unwrap_or_default()
    }

    /// Resets the peak of the bytes that a pool holds to their present number.
    pub fn reset_peak(&self, pool: usize) {
        let mut inner = self.inner.lock();
        let (held, peak) = inner.memory.held.entry(pool).or_default();
        *peak = *held;
    }

    /// Bytes of all pieces that exist.
    pub fn total(&self) -> u64 {
        self.inner.lock().memory.total()
    }

    /// Bytes of a pool's pieces that are registered outside the process or not wholly free, as
    /// `is_free` decides for a range.
    pub fn busy(&self, pool: usize, is_free: impl Fn(u64, u64) -> bool) -> u64 {
        let inner = self.inner.lock();
        let own = |handle: &u64| inner.memory.is_of(*handle, pool);
        let mappings = inner.memory.mappings.iter().filter(|(_, m)| own(&m.handle));
        let busy = mappings.filter(|(at, m)| m.pinned || !is_free(**at, m.bytes));
        busy.map(|(_, m)| m.bytes).sum()
    }

    /// True if exactly these devices, one bit each, may use each piece of a pool, at some address
    /// of it.
    pub fn is_accessible(&self, pool: usize, mask: u8) -> bool {
        let inner = self.inner.lock();
        let here = |handle: &u64| {
            let mut all = inner
                .memory
                .mappings
                .values()
                .filter(|m| m.handle == *handle);
            all.any(|m| m.access == mask)
        };
        let own = inner
            .memory
            .pieces
            .iter()
            .filter(|(_, piece)| piece.pool == pool);
        own.into_iter().all(|(handle, _)| here(handle))
    }

    /// Number of events that were recorded and not retired.
    pub fn events(&self) -> usize {
        self.inner.lock().time.events()
    }
}
