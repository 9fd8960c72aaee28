//! Runs recorded request sequences through a stream-ordered pool on a device that does nothing, and
//! prints what the pool would hold and what it would ask of the driver.
//!
//! `zcat x.csv.gz > x.csv; cargo run --release --example stream_pool_traces -- x.csv …`
//!
//! A file has lines `op,ptr,size,stream,thread,time_ns`, `op` being `alloc` or `free`. `LAG`
//! (default 400) is how many requests the device's work is behind the host; `SPARE` and `PIECE` (MiB) set
//! the pool's.

use gpushim_alloc::stream_pool::{Driver, PoolId, Settings, StreamPool};
use gpushim_alloc::{Context, Policy, Stream};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// A device whose work is a fixed number of requests behind the host.
struct Lagging {
    now: AtomicU64,
    lag: u64,
    next: AtomicU64,
    /// Nanoseconds that a real driver would have taken: prices of an H100.
    ns: AtomicU64,
}

impl Lagging {
    fn pay(&self, ns: u64) {
        self.ns.fetch_add(ns, Relaxed);
    }
}

impl Driver for Lagging {
    type Error = i32;
    type Event = u64;
    const OUT_OF_MEMORY: i32 = 2;

    fn is_out_of_memory(error: i32) -> bool {
        error == 2
    }
    fn reserve(&self, _: i32, bytes: u64) -> Result<u64, i32> {
        Ok(self.next.fetch_add(bytes, Relaxed))
    }
    fn create(&self, _: i32, _: u64) -> Result<u64, i32> {
        self.pay(10_000);
        Ok(1)
    }
    fn destroy(&self, _: i32, _: u64, _: u64) {
        self.pay(20_000);
    }
    fn map(&self, _: u64, _: u64, _: u64) -> Result<(), i32> {
        self.pay(600);
        Ok(())
    }
    fn allow(&self, _: u64, _: u64, _: &[i32]) -> Result<(), i32> {
        self.pay(20_000);
        Ok(())
    }
    fn forbid(&self, _: u64, _: u64, _: &[i32]) -> Result<(), i32> {
        Ok(())
    }
    fn peers(&self, _: i32, _: &[i32]) -> Result<(), i32> {
        Ok(())
    }
    fn unmap(&self, _: u64, _: u64) -> Result<(), i32> {
        self.pay(14_000);
        Ok(())
    }
    fn allocate(&self, _: i32, bytes: u64) -> Result<u64, i32> {
        self.pay(50_000);
        Ok(self.next.fetch_add(bytes, Relaxed))
    }
    fn release(&self, _: i32, _: u64, _: u64) -> Result<(), i32> {
        self.pay(40_000);
        Ok(())
    }
    fn record(&self, _: Stream) -> Result<u64, i32> {
        self.pay(200);
        Ok(self.now.load(Relaxed))
    }
    fn order(&self, _: Stream, _: u64) -> Result<(), i32> {
        self.pay(230);
        Ok(())
    }
    fn is_complete(&self, event: u64) -> Result<bool, i32> {
        self.pay(200);
        Ok(event + self.lag <= self.now.load(Relaxed))
    }
    fn wait(&self, _: u64) -> Result<(), i32> {
        Ok(())
    }
    fn retire(&self, _: u64) {}
    fn admit(&self, _: i32, _: u64) -> bool {
        true
    }
    fn make_room(&self, _: PoolId, _: bool) -> bool {
        false
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn main() {
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        for policy in [Policy::Vmm, Policy::Blocks] {
            run(&path, &text, policy);
        }
    }
}

fn run(path: &str, text: &str, policy: Policy) {
    let device = Lagging {
        now: AtomicU64::new(0),
        lag: number("LAG", 400),
        next: AtomicU64::new(1 << 44),
        ns: AtomicU64::new(0),
    };
    let settings = Settings {
        policy,
        spare: number("SPARE", 25),
        piece: number("PIECE", 2) << 20,
        ..Settings::default()
    };
    let pool = StreamPool::new(0, settings);
    let mut live = HashMap::new();
    let mut unknown = 0;
    let started = Instant::now();
    let (mut operations, mut halfway) = (0u64, (0, 0));
    let lines = text.lines().count() as u64;
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [op, pointer, size, stream, ..] = fields[..] else {
            continue;
        };
        let handle = stream.parse::<u64>().unwrap_or(0).max(1);
        let stream = Stream {
            context: Context(1),
            handle,
            thread: 0,
        };
        operations += 1;
        device.now.fetch_add(1, Relaxed);
        if op == "alloc" {
            let bytes = size.parse().expect("bytes");
            let grant = pool.allocate(&device, stream, bytes).expect("memory");
            live.insert(pointer.to_owned(), grant.address);
        } else if let Some(address) = live.remove(pointer) {
            pool.free(stream, address, |_| ()).expect("a live block");
        } else {
            unknown += 1;
        }
        if operations == lines / 2 {
            halfway = (device.ns.load(Relaxed), pool.stats().grown);
        }
    }
    let wall = started.elapsed();
    let s = pool.stats();
    println!(
        "{:24} {policy:?}: allocated {:6} MiB, reserved {:6} MiB, {:.4}; grown {} (2nd half {}) ordered {} created {} moved {} aliased {} released {} waited {}; driver {:.1} ms (2nd half {:.1}), {:.0} ns/op, unknown {unknown}",
        path.rsplit('/').next().unwrap_or(path),
        s.peak_allocated >> 20,
        s.peak_reserved >> 20,
        s.peak_requested as f64 / s.peak_reserved as f64,
        s.grown,
        s.grown - halfway.1,
        s.ordered,
        s.created,
        s.moved,
        s.aliased,
        s.released,
        s.host_waits,
        device.ns.load(Relaxed) as f64 / 1e6,
        (device.ns.load(Relaxed) - halfway.0) as f64 / 1e6,
        wall.as_nanos() as f64 / operations as f64,
    );
}
