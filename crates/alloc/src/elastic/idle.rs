//! Pieces that are idle: they have memory, and no tensor.
//!
//! While nobody lacks memory, that of idle pieces need not be in the lists of what is spare: most pieces have a tensor again
//! soon. So an idle piece keeps its memory, which costs one store. The memory becomes spare when somebody looks for memory, or
//! when the piece was idle for long.
//!
//! While idle pieces do not keep their memory, there is none outside of segments that keep all of theirs.

use super::piece::Piece;
use super::segment::Segment;
use super::state::State;
use super::types::Mode;

impl<E: Copy> State<E> {
    /// The idle pieces, whose memory may go elsewhere.
    pub fn idle(&self) -> impl Iterator<Item = &Piece> {
        let segments = self.segments.values();
        let segments = segments.filter(|segment| !segment.keeps_all() && !self.is_off);
        let pieces = segments.flat_map(Segment::pieces);
        pieces
            .map(|(_, piece)| piece)
            .filter(|piece| piece.is_idle())
    }

    /// Somebody lacks memory: what idle pieces have is spare from here on, and becomes so at once.
    pub fn release_idle(&mut self) {
        if self.keeps_idle {
            self.keeps_idle = false;
            self.release_left_until(u64::MAX);
        }
    }

    /// The memory of pieces becomes spare whose last tensor left at a time or before, in the order in which they were left.
    pub fn release_left_until(&mut self, time: u64) {
        if self.is_off {
            return;
        }
        let segments = self.segments.values_mut();
        let segments = segments.filter(|segment| !segment.keeps_all());
        let pieces = segments.flat_map(Segment::pieces_mut);
        let mut idle: Vec<&mut Piece> = pieces
            .filter(|piece| piece.is_idle() && piece.left <= time)
            .collect();
        idle.sort_unstable_by_key(|piece| piece.left);
        for piece in idle {
            self.memories.release_from(piece);
        }
    }

    /// At a tick: idle pieces keep their memory again, if nobody lacks any, and none is the host's, which is to be replaced by the
    /// device's. Memory of the host that stays (a weight is on it) ends this for the run.
    pub fn may_keep_idle(&mut self) {
        let any_on_host = self.memories.all().any(|memory| memory.handle.is_host);
        self.keeps_idle = self.mode == Mode::Pressure && !self.is_short && !any_on_host;
    }
}
