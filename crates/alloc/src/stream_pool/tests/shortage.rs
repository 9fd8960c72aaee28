//! What goes back while some of it is in use.

use super::threads::Slow;
use crate::handles::Context;
use crate::handles::Stream;
use crate::stream_pool::{Settings, StreamPool};

const MIB: u64 = 1 << 20;

#[test]
fn a_small_block_keeps_no_large_piece() {
    let (driver, pool) = (Slow::new(0), StreamPool::new(0, Settings::default()));
    let stream = Stream {
        context: Context(1),
        handle: 7,
        thread: 0,
    };
    let allocate = |bytes| pool.allocate(&driver, stream, bytes).expect("memory");
    let large = allocate(900 * MIB);
    pool.free(stream, large.address, |_| ()).expect("a free");
    allocate(MIB);
    pool.trim(&driver, 0);
    let held = pool.stats().reserved;
    assert!(held <= 2 * MIB, "{held} bytes are held for one MiB");
}

#[test]
fn a_first_large_request_takes_few_pieces() {
    let (driver, pool) = (Slow::new(0), StreamPool::new(0, Settings::default()));
    let stream = Stream {
        context: Context(1),
        handle: 7,
        thread: 0,
    };
    // Also once more, after all went back.
    for created in [1, 2] {
        let block = pool.allocate(&driver, stream, 900 * MIB).expect("memory");
        assert_eq!(pool.stats().created, created);
        pool.free(stream, block.address, |_| ()).expect("a free");
        pool.trim(&driver, 0);
        assert_eq!(pool.stats().reserved, 0);
    }
}

#[test]
fn pieces_move_however_many_free_blocks_have_none() {
    let (driver, pool) = (Slow::new(0), StreamPool::new(0, Settings::default()));
    let stream = Stream {
        context: Context(1),
        handle: 7,
        thread: 0,
    };
    let allocate = |bytes| {
        pool.allocate(&driver, stream, bytes)
            .expect("memory")
            .address
    };
    let free = |address| pool.free(stream, address, |_| ()).expect("a free");
    let pieces: Vec<u64> = (0..40).map(|_| allocate(16 * MIB)).collect();
    let apart = allocate(64 * MIB);
    allocate(4 * MIB);
    let last = allocate(64 * MIB);
    pieces.into_iter().for_each(free);
    // A quarter of a piece each, of which every second one is free: none of those has a piece of its own.
    let quarters: Vec<u64> = (0..160).map(|_| allocate(4 * MIB)).collect();
    quarters.into_iter().step_by(2).for_each(free);
    free(apart);
    free(last);
    let held = pool.stats().reserved;
    allocate(128 * MIB);
    assert_eq!(
        pool.stats().reserved,
        held,
        "two blocks of 64 MiB were free"
    );
}
