//! Pages that pieces have beside their tensors.
//!
//! A piece goes to a tensor as a whole. While the tensor lives, no other tensor can have the pages
//! of the piece that it is not on. There are none if tensors repeat, but a smaller tensor in the
//! same place leaves many. When these pages would exceed a bound, the piece is cut instead. The
//! bound applies only while the device has less memory left than the segments hold.

use std::ops::Range;

use super::pages::PAGE;
use super::piece::Piece;

/// Divisor of the bytes held, for the bound. With a 256th no piece's rest causes a refusal at 1.02
/// times the requested bytes (`docs/measurements/2026-11-27-elastic-at-the-limit.md`).
const SHARE: u64 = 256;

/// Count of the pages beside tensors, and its bound. A page still counts when another tensor is
/// allocated on it.
#[derive(Default)]
pub(super) struct Excess {
    pages: usize,
    /// Highest number of them before pieces are cut. `None`: pieces are never cut.
    bound: Option<usize>,
}

impl Excess {
    /// Sets the bound by the bytes that the segments hold.
    pub fn limit(&mut self, held: u64, is_tight: bool) {
        self.bound = is_tight.then_some((held / PAGE / SHARE) as usize);
    }

    /// True if this number of more pages would exceed the bound.
    pub fn is_too_much(&self, pages: usize) -> bool {
        let bound = self.bound.filter(|_| pages > 0);
        bound.is_some_and(|bound| self.pages.saturating_add(pages) > bound)
    }

    /// Notes that a piece without a tensor goes to one that is not on this number of its pages.
    pub fn began(&mut self, piece: &mut Piece, pages: usize) {
        self.ended(piece);
        piece.excess = pages;
        self.pages += pages;
    }

    /// Notes that a piece has no tensor any more, or is gone.
    pub fn ended(&mut self, piece: &mut Piece) {
        self.pages -= std::mem::take(&mut piece.excess);
    }
}

/// Number of pages of a piece that a tensor is not on.
pub(super) fn beside(piece: &Range<usize>, tensor: &Range<usize>) -> usize {
    tensor.start.saturating_sub(piece.start) + piece.end.saturating_sub(tensor.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_cut_only_beyond_the_bound() {
        let mut excess = Excess::default();
        assert!(!excess.is_too_much(1000), "no bound while there is memory");
        excess.limit(512 * PAGE, true);
        assert!(!excess.is_too_much(2), "a 256th");
        assert!(excess.is_too_much(3));
        excess.limit(512 * PAGE, false);
        assert!(!excess.is_too_much(3));
    }

    #[test]
    fn pages_on_either_side_are_beside_a_tensor() {
        assert_eq!(beside(&(4..8), &(5..6)), 3);
        assert_eq!(beside(&(4..8), &(0..6)), 2);
        assert_eq!(beside(&(4..8), &(4..9)), 0);
    }
}
