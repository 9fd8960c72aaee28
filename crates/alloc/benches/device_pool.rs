//! What a pair of allocate and free costs on a device that costs nothing.
//!
//! `hit`: every block is ready, as after the program synchronised. `ordered`: one block over and
//! over, so that each request needs a fence and an order.

use divan::{Bencher, black_box};
use gpushim_alloc::device_pool::{Device, DevicePool, Settings};
use gpushim_alloc::{Address, Context};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn main() {
    divan::main();
}

const CONTEXT: Context = Context(1);
/// Pairs between two synchronisations.
const PAIRS: usize = 512;

#[derive(Default)]
struct Free(AtomicU64);

impl Device for Free {
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
        Ok((1 << 40) + self.0.fetch_add(bytes, Relaxed))
    }
    fn release(&self, _: Context, _: u64, _: Address, _: u64) -> Result<(), i32> {
        Ok(())
    }
    fn record(&self, _: Context) -> Result<Option<u64>, i32> {
        Ok(Some(0))
    }
    fn order(&self, _: Context, _: u64) -> Result<(), i32> {
        Ok(())
    }
    fn is_complete(&self, _: u64) -> Result<bool, i32> {
        Ok(false)
    }
    fn wait(&self, _: u64) -> Result<(), i32> {
        Ok(())
    }
    fn retire(&self, _: u64) {}
    fn synchronize(&self, _: Context) -> Result<(), i32> {
        Ok(())
    }
    fn memory_info(&self, _: Context) -> Result<(u64, u64), i32> {
        Ok((1 << 36, 1 << 37))
    }
}

fn pool(thread_cache: bool) -> DevicePool<Free> {
    DevicePool::new(
        Free::default(),
        Settings {
            thread_cache,
            ..Settings::default()
        },
    )
}

fn pairs(pool: &DevicePool<Free>, sizes: &[u64]) {
    for n in 0..PAIRS {
        let bytes = sizes[n % sizes.len()];
        if let Ok(grant) = pool.allocate(CONTEXT, black_box(bytes)) {
            let _ = pool.free(black_box(grant.address), |_| ());
        }
    }
}

fn synchronize(pool: &DevicePool<Free>) {
    let mark = pool.mark(CONTEXT);
    pool.synchronized(CONTEXT, mark);
}

/// As many blocks as there are pairs, all ready.
fn fill(pool: &DevicePool<Free>, sizes: &[u64], threads: usize) {
    let grants: Vec<_> = (0..PAIRS * threads)
        .filter_map(|n| pool.allocate(CONTEXT, sizes[n % sizes.len()]).ok())
        .collect();
    for grant in grants {
        let _ = pool.free(grant.address, |_| ());
    }
    synchronize(pool);
}

const ONE: [u64; 1] = [1 << 20];
const MIXED: [u64; 7] = [512, 4096, 1 << 20, 3 << 20, 12_845_056, 2_359_296, 64 << 20];

#[divan::bench(args = [(false, 1), (true, 1), (false, 7), (true, 7)], sample_count = 2000)]
fn hit(bencher: Bencher<'_, '_>, (thread_cache, sizes): (bool, usize)) {
    let pool = pool(thread_cache);
    let sizes: &[u64] = if sizes == 1 { &ONE } else { &MIXED };
    fill(&pool, sizes, 1);
    bencher
        .counter(divan::counter::ItemsCount::new(PAIRS))
        .with_inputs(|| synchronize(&pool))
        .bench_local_values(|()| pairs(&pool, sizes));
}

#[divan::bench(args = [false, true], threads = [2], sample_count = 1000)]
fn hit_threads(bencher: Bencher<'_, '_>, thread_cache: bool) {
    let pool = pool(thread_cache);
    fill(&pool, &ONE, 8);
    bencher
        .counter(divan::counter::ItemsCount::new(PAIRS))
        .with_inputs(|| synchronize(&pool))
        .bench_values(|()| pairs(&pool, &ONE));
}

#[divan::bench(sample_count = 1000)]
fn ordered(bencher: Bencher<'_, '_>) {
    let pool = pool(false);
    bencher
        .counter(divan::counter::ItemsCount::new(PAIRS))
        .bench_local(|| pairs(&pool, &ONE));
}
