//! Runs recorded request sequences through the pool on a device that does nothing. Prints the memory that the
//! pool would hold and how often it would call the driver.
//!
//! `zcat x.csv.gz > x.csv; cargo run --release --example device_pool_traces -- x.csv …`
//!
//! A file has lines `op,ptr,size,stream,thread,time_ns`, `op` being `alloc` or `free`. `LAG`
//! (default 40) is how many requests the device's work is behind the host; `SHARE`, `SLACK` and
//! `FLOOR` (MiB) set the pool's; `GIB` the memory of the device (default 80).

use gpushim_alloc::device_pool::{Device, DevicePool, Settings};
use gpushim_alloc::{Address, Context, Reuse, Stats};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A device whose work is a fixed number of requests behind the host.
struct Lagging {
    now: AtomicU64,
    lag: u64,
    next: AtomicU64,
    held: Mutex<BTreeMap<Address, u64>>,
    total: u64,
    bytes: AtomicU64,
    records: AtomicU64,
    orders: AtomicU64,
    queries: AtomicU64,
}

impl Device for Lagging {
    type Error = i32;
    type Event = u64;
    const OUT_OF_MEMORY: i32 = 2;

    fn is_out_of_memory(error: i32) -> bool {
        error == 2
    }
    fn ordinal(&self, _: Context) -> Result<i32, i32> {
        Ok(0)
    }
    fn allocate(&self, _: Context, bytes: u64) -> Result<Address, i32> {
        let bytes = if bytes > 2 << 20 {
            bytes.next_multiple_of(2 << 20)
        } else {
            bytes
        };
        if self.bytes.load(Relaxed) + bytes > self.total {
            return Err(2);
        }
        self.bytes.fetch_add(bytes, Relaxed);
        let address = self.next.fetch_add(bytes.next_multiple_of(512), Relaxed);
        self.held.lock().unwrap().insert(address, bytes);
        Ok(address)
    }
    fn release(&self, _: Context, address: Address, _: u64, _: u64) -> Result<(), i32> {
        let bytes = self.held.lock().unwrap().remove(&address).ok_or(1)?;
        self.bytes.fetch_sub(bytes, Relaxed);
        Ok(())
    }
    fn record(&self, _: Context) -> Result<Option<u64>, i32> {
        self.records.fetch_add(1, Relaxed);
        Ok(Some(self.now.load(Relaxed)))
    }
    fn order(&self, _: Context, _: u64) -> Result<(), i32> {
        self.orders.fetch_add(1, Relaxed);
        Ok(())
    }
    fn is_complete(&self, event: u64) -> Result<bool, i32> {
        self.queries.fetch_add(1, Relaxed);
        Ok(event + self.lag < self.now.load(Relaxed))
    }
    fn wait(&self, _: u64) -> Result<(), i32> {
        Ok(())
    }
    fn retire(&self, _: u64) {}
    fn synchronize(&self, _: Context) -> Result<(), i32> {
        Ok(())
    }
    fn memory_info(&self, _: Context) -> Result<(u64, u64), i32> {
        Ok((self.total - self.bytes.load(Relaxed), self.total))
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

enum Op {
    Alloc(u64, u64),
    Free(u64),
}

fn read(path: &str) -> Vec<Op> {
    let text = std::fs::read_to_string(path).expect("a readable file");
    let mut ops = Vec::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [op, ptr, size, ..] = fields[..] else {
            continue;
        };
        let ptr = u64::from_str_radix(ptr.trim_start_matches("0x"), 16).expect("an address");
        match op {
            "alloc" => ops.push(Op::Alloc(ptr, size.parse().expect("a size"))),
            _ => ops.push(Op::Free(ptr)),
        }
    }
    ops
}

fn main() {
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "{:<12} {:>6} {:>6} {:>6} {:>5} {:>6} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6} {:>6}",
        "trace",
        "reqst",
        "alloc",
        "resvd",
        "x req",
        "x all",
        "allocs",
        "hit %",
        "order%",
        "grown",
        "releasd",
        "late g",
        "late r",
        "query"
    );
    for path in std::env::args().skip(1) {
        let ops = read(&path);
        let name = path
            .rsplit('/')
            .next()
            .unwrap_or(&path)
            .trim_end_matches(".csv");
        let device = Lagging {
            now: AtomicU64::new(0),
            lag: setting("LAG", 40),
            next: AtomicU64::new(1 << 40),
            held: Mutex::default(),
            total: setting("GIB", 80) << 30,
            bytes: AtomicU64::new(0),
            records: AtomicU64::new(0),
            orders: AtomicU64::new(0),
            queries: AtomicU64::new(0),
        };
        let defaults = Settings::default();
        let settings = Settings {
            reuse: if setting("STRICT", 0) == 1 {
                Reuse::Strict
            } else {
                Reuse::Order
            },
            share: setting("SHARE", defaults.share.into()) as u32,
            slack: setting("SLACK", defaults.slack),
            floor: setting("FLOOR", defaults.floor >> 20) << 20,
            thread_cache: setting("FRONT", 1) == 1,
            ..defaults
        };
        let pool = DevicePool::new(device, settings);
        let mut live = HashMap::new();
        let mut half = Stats::default();
        for (n, op) in ops.iter().enumerate() {
            pool.device().now.store(n as u64, Relaxed);
            match op {
                Op::Alloc(ptr, size) => match pool.allocate(Context(1), (*size).max(1)) {
                    Ok(grant) => {
                        live.insert(*ptr, grant.address);
                    }
                    Err(_) => println!("out of memory"),
                },
                Op::Free(ptr) => {
                    if let Some(address) = live.remove(ptr) {
                        pool.free(address, |_| ()).expect("a live block");
                    }
                }
            }
            if n == ops.len() / 2 {
                half = pool.stats(None);
            }
        }
        let s = pool.stats(None);
        let allocs = s.hits + s.ordered + s.waited + s.grown;
        let percent = |n: u64| 100.0 * n as f64 / allocs as f64;
        println!(
            "{name:<12} {:>6} {:>6} {:>6} {:>5.2} {:>6.2} {allocs:>7} {:>7.2} {:>7.2} {:>7} {:>7} {:>6} {:>6} {:>6}",
            mib(s.peak_requested),
            mib(s.peak_allocated),
            mib(s.peak_reserved),
            s.peak_reserved as f64 / s.peak_requested as f64,
            s.peak_reserved as f64 / s.peak_allocated as f64,
            percent(s.hits),
            percent(s.ordered),
            s.grown,
            s.released,
            s.grown - half.grown,
            s.released - half.released,
            pool.device().queries.load(Relaxed),
        );
    }
}
