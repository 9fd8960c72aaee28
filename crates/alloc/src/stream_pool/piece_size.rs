//! How large a piece of new memory is.
//!
//! A piece is mapped and moved as a whole. One block can keep all of it from being used elsewhere, so that small
//! pieces hold less; but each costs 40 to 60 µs to get (measured on an H100, the same from 2 to 256 MiB), so that few
//! pieces are faster. Both follow the request: a piece is a small share of it, so that the blocks that come after it
//! in the same place, which are of its size as a rule, fill many pieces.
//!
//! The shares were chosen on recordings (docs/measurements/2026-11-25-pages.md).

use super::state::State;

/// Where memory comes and goes, a piece is this share of the request, of one or two pages.
const OF_WHAT_GOES: u64 = 16;
const PAGES_OF_WHAT_GOES: u64 = 2;
/// Where it stays (the weights of a model, and all that comes before the first free), a larger one.
const OF_WHAT_STAYS: u64 = 32;
const PAGES_OF_WHAT_STAYS: (u64, u64) = (8, 16);
/// A request of gigabytes is got in about this many pieces, of at most 512 pages: 1 GiB of the smallest pages.
const PIECES_OF_LARGE: u64 = 128;
const MOST_PAGES: u64 = 512;

impl<E: Copy> State<E> {
    /// Bytes of the next piece of new memory for a request of `need` bytes, of which `room` bytes lack memory here.
    pub fn piece_size(&self, need: u64, room: u64) -> u64 {
        let page = self.settings.page;
        let pages = need / page;
        let piece = if self.churns() {
            let share = (pages / OF_WHAT_GOES).clamp(1, PAGES_OF_WHAT_GOES);
            (share * page).max(self.settings.piece)
        } else {
            let (least, most) = PAGES_OF_WHAT_STAYS;
            let share = (pages / OF_WHAT_STAYS).clamp(least, most);
            share.max((pages / PIECES_OF_LARGE).min(MOST_PAGES)) * page
        };
        room.min(piece)
    }

    /// Whether memory comes and goes: more than a sixteenth of what is allocated was freed since the pool was last empty.
    fn churns(&self) -> bool {
        self.stats.freed_bytes - self.calm > self.stats.allocated / 16
    }
}
