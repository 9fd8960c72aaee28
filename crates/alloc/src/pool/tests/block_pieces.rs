//! Tests of the memory of a block as other processes get it.

use super::threads::Slow;
use crate::handles::{Context, Stream};
use crate::pool::{Pool, Settings};

const MIB: u64 = 1 << 20;
const STREAM: Stream = Stream {
    context: Context(1),
    handle: 7,
    thread: 0,
};

#[test]
fn a_block_has_all_the_memory_that_it_lies_on_and_a_free_one_none() {
    let (driver, pool) = (Slow::new(0), Pool::new(0, Settings::default()));
    let allocate = |bytes| {
        pool.allocate(&driver, STREAM, bytes)
            .expect("memory")
            .address
    };
    let blocks = [3, 40, 1].map(|mib| (allocate(mib * MIB), mib * MIB));
    let mut first = None;
    for (address, bytes) in blocks {
        let backing = pool.pieces(address + bytes - 1).expect("a live block");
        assert_eq!(
            (backing.block.address, backing.block.requested),
            (address, bytes)
        );
        let memory: u64 = backing.pieces.iter().map(|(_, bytes)| bytes).sum();
        assert!(backing.base <= address && address + bytes <= backing.base + memory);
        // No piece is there that the block does not touch.
        let (head, tail) = (
            backing.pieces[0].1,
            backing.pieces[backing.pieces.len() - 1].1,
        );
        assert!(backing.base + head > address);
        assert!(backing.base + memory - tail < address + bytes);
        first.get_or_insert(backing);
    }
    let (address, bytes) = blocks[0];
    pool.free(STREAM, address, |_| ()).expect("a free");
    assert_eq!(pool.pieces(address), None);
    assert_eq!(allocate(bytes), address);
    let again = pool.pieces(address).expect("a live block");
    assert_ne!(
        Some(again),
        first,
        "another block has another serial number"
    );
}
