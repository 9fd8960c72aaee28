//! The memory behind a block, for other processes that are to map it.

use crate::driver::Driver;
use crate::pool::serve::Pool;
use crate::pool::types::LiveBlock;

/// A block and the pieces of memory that it lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPieces {
    /// The block.
    pub block: LiveBlock,
    /// Where the first piece begins.
    pub base: u64,
    /// The pieces in the order of their addresses, without a gap: the driver's handle and bytes of each.
    pub pieces: Vec<(u64, u64)>,
}

impl<D: Driver> Pool<D> {
    /// The memory behind the block in the caller's hands that contains an address. `None`: there is no such block, or its
    /// memory has no handles.
    ///
    /// The memory stays there while the block is live. Whoever uses the handles asks again afterwards: if the same
    /// block is still there, they were valid all the time.
    pub fn pieces(&self, address: u64) -> Option<BlockPieces> {
        let block = self.find(address)?;
        let end = block.address + block.requested;
        let state = self.state.lock();
        let (&base, _) = state.space.pieces.range(..=block.address).next_back()?;
        let mut covered = base;
        let mut pieces = Vec::new();
        for (&at, piece) in state.space.pieces.range(base..end) {
            if at != covered || piece.handle == 0 {
                return None;
            }
            covered = at + piece.bytes;
            pieces.push((piece.handle, piece.bytes));
        }
        let pieces = BlockPieces {
            block,
            base,
            pieces,
        };
        (covered >= end).then_some(pieces)
    }
}
