//! Free pieces that move to where a request lacks memory.

use super::block::Id;
use super::space::Piece;
use super::state::State;
use crate::rules;
use crate::size_class;
use rustc_hash::FxHashSet;
use std::cmp::Reverse;

/// Free blocks that are looked through for pieces, at most, while the driver has memory.
const LOOKS: usize = 32;
/// The same where those did not have enough: only as many as 0.2 ms allow, as new memory would be held in addition.
const LOOKS_IN_NEED: usize = 1024;

/// Pieces found, and how many bytes of them fit.
#[derive(Default)]
struct Found {
    pieces: Vec<(u64, Piece, Id)>,
    bytes: u64,
}

/// Which free blocks are looked through.
#[derive(Clone, Copy)]
enum Lot {
    /// The smallest, from a class on.
    Smallest(usize),
    /// The largest.
    Largest,
}

impl<E: Copy> State<E> {
    /// Free pieces that the queue may use for gaps of `bytes` bytes together and `largest` at most, those that are to be taken
    /// first last. They come from the smallest free blocks: a large one may yet serve a large request. `all`: all that
    /// there are; else as many as are needed, if they are soon found.
    pub fn donors(
        &mut self,
        queue: u32,
        (bytes, largest): (u64, u64),
        all: bool,
    ) -> Vec<(u64, Piece, Id)> {
        let enough = if all { u64::MAX } else { bytes };
        let mut found = Found::default();
        let page = self.settings.page;
        // Blocks of less than two pages have a whole one only if they begin with it: they come last.
        let (one, two) = (
            size_class::floor(page),
            size_class::floor(page.saturating_mul(2)),
        );
        let lots = match all {
            true => vec![(Lot::Smallest(one), usize::MAX)],
            false => vec![
                (Lot::Smallest(two), LOOKS),
                (Lot::Largest, LOOKS),
                (Lot::Smallest(one), LOOKS_IN_NEED),
            ],
        };
        for (lot, looks) in lots {
            let before: FxHashSet<Id> = found.pieces.iter().map(|(_, _, id)| *id).collect();
            let mut looks = looks;
            let mut at = 0;
            while looks > 0
                && found.bytes < enough
                && let Some(other) = self.queues.holder(at)
            {
                at = other + 1;
                for small in [true, false] {
                    for id in self.some_of(other, small, lot, looks) {
                        looks -= 1;
                        if found.bytes < enough && !before.contains(&id) && self.may_use(queue, id)
                        {
                            self.pieces_of(id, largest, enough, &mut found);
                        }
                    }
                }
            }
        }
        // The largest first; among equals those whose work is over, then the oldest.
        found.pieces.sort_by_cached_key(|(address, piece, id)| {
            let block = self.slab.at(*id);
            let complete = self.queues.is_complete(block.queue, block.fence);
            (piece.bytes, complete, Reverse(*address))
        });
        found.pieces
    }

    /// At most `most` free blocks of a queue.
    fn some_of(&mut self, queue: u32, small: bool, lot: Lot, most: usize) -> Vec<Id> {
        let mut found = Vec::new();
        if let Some(bins) = self.queues.get(queue).and_then(|queue| queue.bins(small)) {
            match lot {
                Lot::Smallest(low) => {
                    let classes = (low, size_class::CLASSES - 1);
                    bins.smallest(&mut self.slab, classes, most, &mut found);
                }
                Lot::Largest => {
                    bins.largest_to(&mut self.slab, size_class::CLASSES - 1, most, &mut found);
                }
            }
        }
        found
    }

    /// Adds the pieces that lie wholly in a free block and may move to those found, until those are enough.
    fn pieces_of(&self, id: Id, largest: u64, enough: u64, found: &mut Found) {
        let block = self.slab.at(id);
        let (start, end) = (block.address, block.end());
        for (address, piece) in self.space.pieces.range(start..end) {
            if found.bytes >= enough {
                return;
            }
            if !rules::must_stay(piece.pinned) && address + piece.bytes <= end {
                found.pieces.push((*address, *piece, id));
                found.bytes += if piece.bytes <= largest {
                    piece.bytes
                } else {
                    0
                };
            }
        }
    }
}
