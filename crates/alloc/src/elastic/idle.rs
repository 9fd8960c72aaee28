//! Idle pieces: they have memory, and no tensor.
//!
//! Most idle pieces soon have a tensor again. So while no request lacks memory, an idle piece keeps its own: a tensor's death costs
//! one store for each of its pieces, and no change of a list. The memory becomes spare when a request lacks memory, or when the
//! piece was idle for long.
//!
//! Once a request has lacked memory, pieces become spare at once, and only segments that keep all their memory have idle ones.

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

    /// A request lacks memory: that of idle pieces becomes spare, and that of later ones at once.
    pub fn release_idle(&mut self) {
        if self.keeps_idle {
            self.keeps_idle = false;
            self.release_left_until(u64::MAX);
        }
    }

    /// The memory of pieces that became idle at a time or before it becomes spare, in the order in which they did.
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

    /// At a tick: idle pieces keep their memory again if the last request for new memory was met. Not while any memory is the
    /// host's: a piece must not keep that, since the device may have some by its next tensor.
    pub fn may_keep_idle(&mut self) {
        let any_on_host = self.memories.all().any(|memory| memory.handle.is_host);
        self.keeps_idle = self.mode == Mode::Pressure && !self.is_short && !any_on_host;
    }
}
