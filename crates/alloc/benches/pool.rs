//! The time of a pair of allocate and free on a device that costs nothing.
//!
//! `hit`: every block is ready, as after the program synchronised. `ordered`: one block over and
//! over, so that each request needs a fence and an order.

use divan::{Bencher, black_box};
use gpushim_alloc::pool::{Backing, Pool, Settings};
use gpushim_alloc::{Context, Driver, Home, PoolId, Stream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn main() {
    divan::main();
}

const CONTEXT: Context = Context(1);
/// Pairs between two synchronisations.
const PAIRS: usize = 512;

#[derive(Default)]
struct Free(AtomicU64);

impl Driver for Free {
    type Error = i32;
    type Event = u64;
    type Admission = ();
    const OUT_OF_MEMORY: i32 = 2;

    fn is_out_of_memory(error: i32) -> bool {
        error == 2
    }
    fn reserve(&self, _: i32, _: u64) -> Result<u64, i32> {
        Ok(1 << 44)
    }
    fn create(&self, _: i32, _: u64) -> Result<u64, i32> {
        Ok(1 + self.0.fetch_add(1, Relaxed))
    }
    fn destroy(&self, _: i32, _: u64, _: u64) {}
    fn map(&self, _: u64, _: u64, _: u64) -> Result<(), i32> {
        Ok(())
    }
    fn allow(&self, _: u64, _: u64, _: &[i32]) -> Result<(), i32> {
        Ok(())
    }
    fn forbid(&self, _: u64, _: u64, _: &[i32]) -> Result<(), i32> {
        Ok(())
    }
    fn unmap(&self, _: u64, _: u64) -> Result<(), i32> {
        Ok(())
    }
    fn allocate(&self, _: Home, bytes: u64) -> Result<u64, i32> {
        Ok((1 << 40) + self.0.fetch_add(bytes, Relaxed))
    }
    fn release(&self, _: Home, _: u64, _: u64) -> Result<(), i32> {
        Ok(())
    }
    fn record(&self, _: Stream) -> Result<u64, i32> {
        Ok(0)
    }
    fn order(&self, _: Stream, _: u64) -> Result<(), i32> {
        Ok(())
    }
    fn is_complete(&self, _: u64) -> Result<bool, i32> {
        Ok(false)
    }
    fn wait(&self, _: u64) -> Result<(), i32> {
        Ok(())
    }
    fn retire(&self, _: u64) {}
    fn admit(&self, _: i32, _: u64) -> Option<()> {
        Some(())
    }
    fn make_room(&self, _: PoolId, _: bool) -> bool {
        false
    }
}

/// A family of calls and the memory that serves it.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Requests as of `cudaMalloc`, in pages.
    Pages,
    /// `cudaMalloc` in whole allocations.
    Whole,
    /// Requests as of `cudaMallocAsync`.
    Stream,
}

const KINDS: [Kind; 3] = [Kind::Pages, Kind::Whole, Kind::Stream];

struct Bench {
    driver: Free,
    pool: Pool<Free>,
    stream: Stream,
}

impl Bench {
    /// A pool with as many blocks as there are pairs, all ready.
    fn new(kind: Kind, sizes: &[u64], threads: usize) -> Self {
        let home = Home {
            context: CONTEXT,
            born: 0,
        };
        let backing = match kind {
            Kind::Whole => Backing::Whole(home),
            Kind::Pages | Kind::Stream => Backing::Pages,
        };
        let stream = match kind {
            Kind::Stream => Stream {
                context: CONTEXT,
                handle: 7,
                thread: 0,
            },
            Kind::Pages | Kind::Whole => Stream::all_of(CONTEXT),
        };
        let settings = Settings {
            backing,
            ..Settings::default()
        };
        let bench = Bench {
            driver: Free::default(),
            pool: Pool::new(0, settings),
            stream,
        };
        let one = |n: usize| {
            let bytes = sizes[n % sizes.len()];
            bench.pool.allocate(&bench.driver, stream, bytes).ok()
        };
        let grants: Vec<_> = (0..PAIRS * threads).filter_map(one).collect();
        for grant in grants {
            let _ = bench.pool.free(stream, grant.address, |_| ());
        }
        bench.synchronize();
        bench
    }

    fn synchronize(&self) {
        self.pool.synchronized(&self.pool.mark(CONTEXT, None, true));
    }

    fn pairs(&self, sizes: &[u64]) {
        for n in 0..PAIRS {
            let bytes = black_box(sizes[n % sizes.len()]);
            if let Ok(grant) = self.pool.allocate(&self.driver, self.stream, bytes) {
                let address = black_box(grant.address);
                let _ = self.pool.free(self.stream, address, |_| ());
            }
        }
    }
}

const ONE: [u64; 1] = [1 << 20];
const MIXED: [u64; 7] = [512, 4096, 1 << 20, 3 << 20, 12_845_056, 2_359_296, 64 << 20];

#[divan::bench(args = KINDS, sample_count = 2000)]
fn hit(bencher: Bencher<'_, '_>, kind: Kind) {
    measure(bencher, kind, &ONE);
}

#[divan::bench(args = KINDS, sample_count = 2000)]
fn hit_of_many_sizes(bencher: Bencher<'_, '_>, kind: Kind) {
    measure(bencher, kind, &MIXED);
}

fn measure(bencher: Bencher<'_, '_>, kind: Kind, sizes: &[u64]) {
    let bench = Bench::new(kind, sizes, 1);
    bencher
        .counter(divan::counter::ItemsCount::new(PAIRS))
        .with_inputs(|| bench.synchronize())
        .bench_local_values(|()| bench.pairs(sizes));
}

#[divan::bench(args = KINDS, threads = [2], sample_count = 1000)]
fn hit_threads(bencher: Bencher<'_, '_>, kind: Kind) {
    let bench = Bench::new(kind, &ONE, 8);
    bencher
        .counter(divan::counter::ItemsCount::new(PAIRS))
        .with_inputs(|| bench.synchronize())
        .bench_values(|()| bench.pairs(&ONE));
}

#[divan::bench(args = KINDS, sample_count = 1000)]
fn ordered(bencher: Bencher<'_, '_>, kind: Kind) {
    let bench = Bench::new(kind, &ONE, 1);
    bencher
        .counter(divan::counter::ItemsCount::new(PAIRS))
        .bench_local(|| bench.pairs(&ONE));
}
