//! Tests of the number of pieces that requests get their memory in.

use super::threads::Slow;
use crate::handles::{Context, Stream};
use crate::pool::{Pool, Settings};

const MIB: u64 = 1 << 20;
const STREAM: Stream = Stream {
    context: Context(1),
    handle: 7,
    thread: 0,
};

/// Number of pieces for a request to an empty pool.
fn pieces_of_first(bytes: u64) -> u64 {
    let driver = Slow::with_capacity(0, 64 << 30);
    let pool = Pool::new(0, Settings::default());
    pool.allocate(&driver, STREAM, bytes).expect("memory");
    pool.stats().created
}

#[test]
fn a_first_request_is_not_cut_small() {
    let pieces = [2, 16, 64, 1024, 40 << 10].map(|mib| pieces_of_first(mib * MIB));
    assert_eq!(pieces, [1, 4, 16, 64, 27]);
}

#[test]
fn small_blocks_at_the_ends_of_what_was_a_vast_one_keep_little() {
    let driver = Slow::with_capacity(0, 64 << 30);
    let pool = Pool::new(0, Settings::default());
    let allocate = |bytes| {
        pool.allocate(&driver, STREAM, bytes)
            .expect("memory")
            .address
    };
    let free = |address| pool.free(STREAM, address, |_| ()).expect("a free");
    let vast = allocate(16 << 30);
    free(vast);
    // The first is cut from the beginning of the vast block. The last is cut from what the next
    // large block leaves at the end.
    let first = allocate(3 * MIB);
    let most = allocate((16 << 30) - 12 * MIB);
    let last = allocate(6 * MIB);
    free(most);
    pool.trim(&driver, 0);
    assert!(vast <= first && last < vast + (16 << 30));
    assert_eq!(pool.stats().reserved, 2 * 64 * MIB);
}

#[test]
fn where_memory_comes_and_goes_pieces_are_one_or_two_pages() {
    let (driver, pool) = (Slow::new(0), Pool::new(0, Settings::default()));
    let allocate = |bytes| pool.allocate(&driver, STREAM, bytes).expect("memory");
    let first = allocate(64 * MIB);
    pool.free(STREAM, first.address, |_| ()).expect("a free");
    allocate(64 * MIB);
    let before = pool.stats().created;
    allocate(20 * MIB);
    assert_eq!(pool.stats().created - before, 10);
    allocate(64 * MIB);
    assert_eq!(pool.stats().created - before, 10 + 16);
}

#[test]
fn a_pool_that_holds_much_gets_larger_pieces() {
    let driver = Slow::with_capacity(0, 64 << 30);
    let pool = Pool::new(0, Settings::default());
    let pieces = |bytes| {
        let before = pool.stats().created;
        let block = pool.allocate(&driver, STREAM, bytes).expect("memory");
        (block.address, pool.stats().created - before)
    };
    pieces(32 << 30);
    // A 512th of 32 GiB is 64 MiB.
    assert_eq!(pieces(512 * MIB).1, 8);
    // A 256th of 24 GiB is 96 MiB.
    assert_eq!(pieces(24 << 30).1, 256);
    let (second, _) = pieces(4 << 30);
    pool.free(STREAM, second, |_| ()).expect("a free");
    // Memory was freed by now, so the share is smaller: a 2048th of 60.5 GiB is 30 MiB.
    assert_eq!(pieces(4608 * MIB).1, 18);
}

#[test]
fn a_first_fill_gets_memory_ahead_of_small_requests() {
    let driver = Slow::with_capacity(0, 64 << 30);
    let pool = Pool::new(0, Settings::default());
    let allocate = |bytes| pool.allocate(&driver, STREAM, bytes).expect("memory");
    allocate(16 << 30);
    let before = pool.stats().created;
    for _ in 0..8 {
        allocate(MIB);
    }
    // A 2048th of 16 GiB is 8 MiB.
    assert_eq!(pool.stats().created - before, 1);
    let last = allocate(1 << 30).address;
    pool.free(STREAM, last, |_| ()).expect("a free");
    pool.trim(&driver, 1);
    // A block was freed before: the next request gets only what it needs.
    let reserved = pool.stats().reserved;
    allocate(2 * MIB);
    assert_eq!(pool.stats().reserved - reserved, 2 * MIB);
}
