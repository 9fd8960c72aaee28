//! Tests of the memory that a pool gives back while some of it is in use.

use super::threads::Slow;
use crate::handles::Context;
use crate::handles::Stream;
use crate::pool::{Pool, Settings};

const MIB: u64 = 1 << 20;

#[test]
fn free_memory_around_a_small_block_goes_back() {
    let (driver, pool) = (Slow::new(0), Pool::new(0, Settings::default()));
    let stream = Stream {
        context: Context(1),
        handle: 7,
        thread: 0,
    };
    let allocate = |bytes| pool.allocate(&driver, stream, bytes).expect("memory");
    let large = allocate(900 * MIB);
    pool.free(stream, large.address, |_| ()).expect("a free");
    let small = allocate(MIB);
    assert_eq!(
        small.address, large.address,
        "it is in the large one's place"
    );
    pool.trim(&driver, 0);
    let held = pool.stats().reserved;
    // The limit is what the driver's own pools keep.
    assert!(held <= 32 * MIB, "{held} bytes are held for one MiB");
}
