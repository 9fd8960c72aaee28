//! Gives pieces that were left their memory again, or unmaps them if another piece has it.

use std::ops::Range;

use super::fences::Fences;
use super::memory::{Memories, Memory};
use super::pages::{PAGE, Pages};
use super::piece::Piece;
use super::request::{Backed, Wanted};
use super::state::State;
use crate::driver::Driver;
use crate::rules;

impl<D: Driver> State<D> {
    /// Gives the pieces on these pages the memory that is mapped at them. A piece that cannot have
    /// its memory again is unmapped.
    pub fn claim(
        &mut self,
        driver: &Pages<D>,
        base: u64,
        pages: Range<usize>,
        wanted: Wanted,
    ) -> Backed {
        let mut backed = Backed::default();
        let mut at = pages.start;
        while let Some((first, piece)) = self.claim_at_once(base, at..pages.end, wanted) {
            if self.keeps_idle && self.memories.at(piece.memory).owner.is_some() {
                // The piece that has the memory may be idle.
                self.release_idle();
                at = first;
                continue;
            }
            let address = base + first as u64 * PAGE;
            at = first + piece.pages();
            if self.may_regain(driver, piece, wanted.stream) {
                let is_ready = self.may_have(self.memories.at(piece.memory), wanted.stream);
                let segment = self.segments.get_mut(base);
                if let Some((_, piece)) = segment.and_then(|of| of.next_piece(first..at)) {
                    regain(&mut self.memories, piece, address, wanted, is_ready);
                }
            } else if !self.unmap(driver, address, piece) {
                backed.missing += piece.pages() as u32;
            }
        }
        backed
    }

    /// Does the part of [`State::claim`] that needs no wait. It returns the first piece that cannot
    /// have its memory at once, for one of these reasons:
    /// - Another piece has the memory.
    /// - The memory is the host's.
    /// - Another piece had the memory last, and its work is neither complete nor ordered before.
    fn claim_at_once(
        &mut self,
        base: u64,
        pages: Range<usize>,
        wanted: Wanted,
    ) -> Option<(usize, Piece)> {
        let Wanted { stream, .. } = wanted;
        let is_capturing = self.is_capturing();
        let segment = self.segments.get_mut(base)?;
        let mut at = pages.start;
        while let Some((first, piece)) = segment.next_piece(at..pages.end) {
            at = first + piece.pages();
            if piece.is_idle() {
                // The allocator above orders the piece's own tensors, but not the work of other
                // streams on the last one.
                let is_ordered =
                    may_have(&self.fences, piece.left, piece.stream, stream, is_capturing);
                piece.stream = stream.filter(|_| is_ordered);
                piece.tensors += wanted.tensors;
                continue;
            }
            if piece.owns_memory {
                piece.orders(stream);
                piece.tensors += wanted.tensors;
                continue;
            }
            let address = base + first as u64 * PAGE;
            let memory = self.memories.at(piece.memory);
            let is_spare = rules::is_spare(memory.owner.is_none());
            let is_ready = may_have(
                &self.fences,
                memory.left,
                memory.stream,
                stream,
                is_capturing,
            );
            // The allocator above orders the piece's own tensors.
            let is_own = memory.last == address;
            if !is_spare || memory.handle.is_host || !is_ready && !is_own {
                return Some((first, *piece));
            }
            regain(&mut self.memories, piece, address, wanted, is_ready);
        }
        None
    }

    /// True if a piece that [`State::claim_at_once`] stopped at may have its memory again. It may
    /// not if another piece has the memory.
    /// - Memory of the host: the piece keeps it while its own work is not complete, or the device
    ///   has no memory for it.
    /// - Memory of the device: the other piece's work on it must be complete or ordered before.
    ///   Waits for that work only if the piece's own work is not complete either, since an unmap
    ///   would wait, too.
    fn may_regain(&mut self, driver: &Pages<D>, piece: Piece, stream: Option<u8>) -> bool {
        let memory = self.memories.at(piece.memory);
        if memory.owner.is_some() {
            return false;
        }
        self.look(driver);
        let memory = self.memories.at(piece.memory);
        let (is_over, left) = (self.fences.is_over(piece.left), memory.left);
        if memory.handle.is_host {
            let mut spare = self.memories.spare();
            let has_room = !self.is_short || spare.any(|(_, of)| self.may_have(of, stream));
            return !is_over || !has_room;
        }
        self.may_have(memory, stream) || !is_over && self.finish(driver, left)
    }

    /// True if `stream` may use this memory now: earlier work on it is complete, or ordered before.
    pub fn may_have(&self, memory: &Memory, stream: Option<u8>) -> bool {
        may_have(
            &self.fences,
            memory.left,
            memory.stream,
            stream,
            self.is_capturing(),
        )
    }

    /// Waits for the work on memory left at this time. False if it cannot be waited for.
    fn finish(&mut self, driver: &Pages<D>, time: u64) -> bool {
        let is_capturing = self.is_capturing();
        if !self.fences.is_over(time) {
            self.is_behind();
        }
        self.fences.finish(driver, time, self.clock, is_capturing)
    }

    /// Unmaps a piece, after its work. Another piece may have the memory. False if the work cannot
    /// be waited for or the driver refuses.
    pub fn unmap(&mut self, driver: &Pages<D>, address: u64, piece: Piece) -> bool {
        if rules::must_finish_place() && !self.finish(driver, piece.left) {
            return false;
        }
        let memory = self.memories.at(piece.memory);
        let (handle, is_spare) = (memory.handle, memory.owner.is_none());
        if driver.unmap(address, handle).is_err() {
            return false;
        }
        let memory = self.memories.at_mut(piece.memory);
        memory.places.retain(|place| *place != address);
        let is_nowhere = memory.places.is_empty();
        if let Some(segment) = self.segments.around_mut(address) {
            segment.take(address);
        }
        if is_nowhere && is_spare && (handle.is_host || self.is_off) {
            self.memories.unlink(piece.memory);
            driver.destroy(handle);
            self.memories.destroyed(piece.memory);
        }
        true
    }
}

/// Gives a piece its memory again.
fn regain(
    memories: &mut Memories,
    piece: &mut Piece,
    address: u64,
    wanted: Wanted,
    is_ready: bool,
) {
    // Earlier tensors' work may still use the piece, beside the work of this one.
    piece.stream = wanted.stream.filter(|_| is_ready);
    piece.tensors += wanted.tensors;
    piece.owns_memory = true;
    memories.unlink(piece.memory);
    memories.own(piece.memory, address);
}

/// True if memory left at this time may go to a piece, for work that `stream` orders. The work on
/// it must be complete, or `last` must be the same stream, with no capture open.
fn may_have<D: Driver>(
    fences: &Fences<D>,
    left: u64,
    last: Option<u8>,
    stream: Option<u8>,
    is_capturing: bool,
) -> bool {
    let is_ordered = stream.is_some() && last == stream && !is_capturing;
    fences.is_over(left) || rules::may_have_in_order(is_ordered)
}
