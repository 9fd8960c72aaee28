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
