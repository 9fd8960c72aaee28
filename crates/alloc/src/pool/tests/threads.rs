//! Tests with eight threads at once.

use super::machine::backing;
use crate::driver::{Driver, Home, PoolId};
use crate::handles::Context;
use crate::handles::Stream;
use crate::policy::Policy;
use crate::pool::{Pool, Settings};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const MIB: u64 = 1 << 20;
const THREADS: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

#[derive(Default)]
struct Memory {
    /// Bytes of each piece, and the number of addresses that it is mapped at, by handle.
    pieces: HashMap<u64, (u64, u64)>,
    /// Bytes and handle of the piece at each address.
    mapped: BTreeMap<u64, (u64, u64)>,
    live: BTreeMap<u64, u64>,
}

/// A device whose events complete when enough others were recorded after them.
pub struct Slow {
    capacity: u64,
    delay: u64,
    memory: Mutex<Memory>,
    next: AtomicU64,
    recorded: AtomicU64,
    /// Number of events recorded and not retired.
    events: AtomicU64,
    /// Runs once, in the next call that frees memory or makes a stream wait.
    pub meanwhile: Once,
    /// Runs once, in the next call in which the host waits.
    pub in_wait: Once,
}

type Once = Mutex<Option<Box<dyn FnOnce() + Send>>>;

fn run(once: &Once) {
    let chosen = once.lock().take();
    chosen.into_iter().for_each(|what| what());
}

impl Slow {
    pub fn new(delay: u64) -> Self {
        Slow::with_capacity(delay, 1 << 30)
    }

    /// Makes a device with another number of bytes of memory than 1 GiB.
    pub fn with_capacity(delay: u64, capacity: u64) -> Self {
        Slow {
            capacity,
            delay,
            memory: Mutex::default(),
            next: AtomicU64::new(1),
            recorded: AtomicU64::new(0),
            events: AtomicU64::new(0),
            meanwhile: Once::default(),
            in_wait: Once::default(),
        }
    }

    /// Checks a block that was handed out: it must have memory, and share none with another block.
    fn granted(&self, address: u64, bytes: u64) {
        let mut memory = self.memory.lock();
        let mut at = address;
        while at < address + bytes {
            let below = memory.mapped.range(..=at).next_back();
            let end = below.map_or(0, |(base, (size, _))| base + size);
            assert!(end > at, "no memory at {at:#x}");
            at = end;
        }
        let before = memory.live.range(..address + bytes).next_back();
        assert!(before.is_none_or(|(other, size)| other + size <= address));
        memory.live.insert(address, bytes);
    }

    fn returned(&self, address: u64) {
        assert!(self.memory.lock().live.remove(&address).is_some());
    }

    fn put(&self, address: u64, bytes: u64, handle: u64) {
        let mut memory = self.memory.lock();
        let before = memory.mapped.range(..address + bytes).next_back();
        assert!(before.is_none_or(|(other, (size, _))| other + size <= address));
        memory.mapped.insert(address, (bytes, handle));
        memory.pieces.entry(handle).or_default().1 += 1;
    }

    fn take(&self, address: u64, bytes: u64) -> u64 {
        let mut memory = self.memory.lock();
        let (size, handle) = memory.mapped.remove(&address).expect("a mapping");
        assert_eq!(size, bytes);
        let used = memory.live.range(..address + bytes).next_back();
        assert!(used.is_none_or(|(other, size)| other + size <= address));
        memory.pieces.entry(handle).or_default().1 -= 1;
        handle
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    pub fn held(&self) -> u64 {
        self.memory
            .lock()
            .pieces
            .values()
            .map(|piece| piece.0)
            .sum()
    }
}

impl Driver for Slow {
    type Error = OutOfMemory;
    type Event = u64;
    type Admission = ();
    const OUT_OF_MEMORY: OutOfMemory = OutOfMemory;

    fn is_out_of_memory(_: OutOfMemory) -> bool {
        true
    }
    fn reserve(&self, _: i32, _: u64) -> Result<u64, OutOfMemory> {
        Ok(1 << 44)
    }
    fn create(&self, _: i32, bytes: u64) -> Result<u64, OutOfMemory> {
        let mut memory = self.memory.lock();
        let held: u64 = memory.pieces.values().map(|piece| piece.0).sum();
        if held + bytes > self.capacity {
            return Err(OutOfMemory);
        }
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        memory.pieces.insert(handle, (bytes, 0));
        Ok(handle)
    }
    fn destroy(&self, _: i32, handle: u64, bytes: u64) {
        let piece = self.memory.lock().pieces.remove(&handle);
        assert_eq!(piece, Some((bytes, 0)));
        run(&self.meanwhile);
    }
    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), OutOfMemory> {
        self.put(address, bytes, handle);
        Ok(())
    }
    fn allow(&self, _: u64, _: u64, _: &[i32]) -> Result<(), OutOfMemory> {
        Ok(())
    }
    fn forbid(&self, _: u64, _: u64, _: &[i32]) -> Result<(), OutOfMemory> {
        Ok(())
    }
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), OutOfMemory> {
        self.take(address, bytes);
        Ok(())
    }
    fn allocate(&self, _: Home, bytes: u64) -> Result<u64, OutOfMemory> {
        let handle = self.create(0, bytes)?;
        // Each block gets an address that no other had.
        let address = handle << 32;
        self.put(address, bytes, handle);
        Ok(address)
    }
    fn release(&self, _: Home, address: u64, bytes: u64) -> Result<(), OutOfMemory> {
        run(&self.in_wait);
        let handle = self.take(address, bytes);
        self.destroy(0, handle, bytes);
        Ok(())
    }
    fn record(&self, _: Stream) -> Result<u64, OutOfMemory> {
        self.events.fetch_add(1, Ordering::Relaxed);
        Ok(self.recorded.fetch_add(1, Ordering::Relaxed))
    }
    fn order(&self, _: Stream, _: u64) -> Result<(), OutOfMemory> {
        run(&self.meanwhile);
        Ok(())
    }
    fn is_complete(&self, event: u64) -> Result<bool, OutOfMemory> {
        Ok(event + self.delay < self.recorded.fetch_add(1, Ordering::Relaxed))
    }
    fn wait(&self, _: u64) -> Result<(), OutOfMemory> {
        run(&self.in_wait);
        Ok(())
    }
    fn retire(&self, _: u64) {
        self.events.fetch_sub(1, Ordering::Relaxed);
    }
    fn admit(&self, _: i32, _: u64) -> Option<()> {
        Some(())
    }
    fn make_room(&self, _: PoolId, _: bool) -> bool {
        false
    }
}

/// Returns the next number of a xorshift generator: the same numbers in each run.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 11
}

fn stream(handle: u64) -> Stream {
    Stream {
        context: Context(1),
        handle,
        thread: 0,
    }
}

/// Runs random operations. If `is_contended`, a thread mostly does what leaves blocks in thread
/// caches.
fn work(pool: &Pool<Slow>, driver: &Slow, seed: u64, operations: usize, is_contended: bool) {
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut live = Vec::new();
    for _ in 0..operations {
        if is_contended {
            pool.contend();
        }
        // A thread's own streams end while no other thread uses them.
        let own = stream(100 + seed);
        let any = match next(&mut random) % 3 {
            0 => own,
            _ if is_contended && !next(&mut random).is_multiple_of(16) => own,
            _ => stream(16 + next(&mut random) % THREADS),
        };
        match next(&mut random) % if is_contended { 200 } else { 24 } {
            0..11 | 110.. if live.len() < 40 => {
                let bytes = match is_contended {
                    true => 4096 << (next(&mut random) % 8),
                    false => next(&mut random) % (1 << (10 + next(&mut random) % 14)) + 1,
                };
                if let Ok(grant) = pool.allocate(driver, any, bytes) {
                    driver.granted(grant.address, grant.size);
                    live.push(grant.address);
                }
            }
            20 => {
                let marks = pool.mark(Context(1), Some(any), true);
                pool.synchronized(&marks);
            }
            21 => pool.stream_gone(driver, own),
            22 => {
                pool.decay(driver);
            }
            23 => {
                pool.trim(driver, next(&mut random) % 64 * MIB);
            }
            _ if !live.is_empty() => {
                let which = next(&mut random) as usize % live.len();
                let address = live.swap_remove(which);
                assert!(is_contended || pool.find(address).is_some());
                driver.returned(address);
                let free = pool.free(any, address, |freed| assert_eq!(freed.address, address));
                free.expect("a live block");
            }
            _ => {}
        }
    }
    for address in live {
        driver.returned(address);
        pool.free(stream(16), address, |_| ())
            .expect("a live block");
    }
}

fn storm(policy: Policy, delay: u64, operations: usize, is_contended: bool) {
    let driver = Slow::new(delay);
    let settings = Settings {
        backing: backing(policy),
        ..Settings::default()
    };
    let pool = Pool::new(0, settings);
    thread::scope(|scope| {
        for seed in 1..=THREADS {
            let (pool, driver) = (&pool, &driver);
            scope.spawn(move || work(pool, driver, seed, operations, is_contended));
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.live, stats.allocated, stats.requested), (0, 0, 0));
    assert_eq!(stats.reserved, driver.held());
    // Two rounds: the second queries the events that the first records.
    (0..=delay + 2).for_each(|_| {
        pool.trim(&driver, 0);
    });
    assert_eq!((pool.stats().reserved, driver.held()), (0, 0));
    pool.trim(&driver, 0);
    assert_eq!(driver.events.load(Ordering::Relaxed), 0, "events are kept");
}

#[test]
fn a_storm() {
    let operations = if cfg!(miri) { 20 } else { 10_000 };
    for policy in [Policy::Vmm, Policy::Blocks] {
        for delay in [0, 20] {
            for is_contended in [false, true] {
                storm(policy, delay, operations, is_contended);
            }
        }
    }
}
