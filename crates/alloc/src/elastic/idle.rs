//! Idle pieces: they have memory, and no tensor.
//!
//! Most idle pieces soon have a tensor again. So while no request lacks memory, an idle piece keeps
//! its memory. Freeing a tensor then costs one store for each of its pieces, and no change of a
//! list. The memory becomes spare when a request lacks memory, or when the piece was idle for long.
//!
//! Once a request has lacked memory, pieces become spare at once. Only segments that keep all their
//! memory have idle pieces then.

use super::piece::Piece;
use super::segment::Segment;
use super::state::State;
use super::types::Mode;
use crate::driver::Driver;

impl<D: Driver> State<D> {
    /// Idle pieces whose memory another piece may take.
    pub fn idle(&self) -> impl Iterator<Item = &Piece> {
        let segments = self.segments.values();
        let segments = segments.filter(|segment| !segment.keeps_all() && !self.is_off);
        let pieces = segments.flat_map(Segment::pieces);
        pieces
            .map(|(_, piece)| piece)
            .filter(|piece| piece.is_idle())
    }

    /// Notes that a request lacks memory. The memory of idle pieces becomes spare, and later memory
    /// at once.
    pub fn release_idle(&mut self) {
        if self.keeps_idle {
            self.keeps_idle = false;
            self.release_left_until(u64::MAX);
        }
    }

    /// Makes the memory of pieces spare that became idle at this time or before, in the order in
    /// which they did.
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

    /// At a tick, lets idle pieces keep their memory again if the last request for new memory was
    /// met. Memory of the host forbids it: a piece must not keep that, as the device may have
    /// memory by its next tensor.
    pub fn may_keep_idle(&mut self) {
        let any_on_host = self.memories.all().any(|memory| memory.handle.is_host);
        self.keeps_idle = self.mode == Mode::Pressure && !self.is_short && !any_on_host;
    }
}
