//! The memory behind a block, for other processes that are to map it.

use crate::driver::Driver;
use crate::pool::serve::Pool;
use crate::pool::types::LiveBlock;

/// A block and the pieces of memory that it lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPieces {
    /// The block in the caller's hands.
    pub block: LiveBlock,
    /// Address of the first piece.
    pub base: u64,
    /// Handle and bytes of each piece, in address order and without a gap.
    pub pieces: Vec<(u64, u64)>,
}

impl<D: Driver> Pool<D> {
    /// Returns the memory behind the live block that contains an address. `None` if there is no
    /// such block, or if its memory has no handles.
    ///
    /// The memory stays there while the block is live. A caller that uses the handles must ask
    /// again afterwards: if the same block is still there, the handles were valid all the time.
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
