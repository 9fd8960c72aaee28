//! Pieces that are idle: they have memory, and no tensor.
//!
//! While nobody lacks memory there is no need to have it in the lists of what is spare: most pieces have a tensor again soon.
//! So an idle piece keeps its memory, which costs a store for each piece and not ten, and becomes spare when somebody
//! looks for memory, or when it was idle for long.

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
        if self.is_lazy {
            self.is_lazy = false;
            self.release_idle_since(u64::MAX);
        }
    }

    /// The memory of pieces becomes spare that have been idle since a time or longer, what was left first before the rest.
    pub fn release_idle_since(&mut self, time: u64) {
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

    /// At a tick: idle pieces keep their memory again, if nobody lacks any, and none is the host's: that is to be replaced.
    pub fn may_be_lazy(&mut self) {
        let any_on_host = self.memories.all().any(|memory| memory.handle.is_host);
        self.is_lazy = self.mode == Mode::Pressure && !self.is_short && !any_on_host;
    }
}
