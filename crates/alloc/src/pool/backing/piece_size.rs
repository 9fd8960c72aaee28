//! How large a piece of new memory is.
//!
//! A piece is mapped and moved as a whole. One block can keep all of it from being used elsewhere, so that small
//! pieces hold less; but each costs 40 to 60 µs to get (measured on an H100, the same from 2 to 256 MiB), so that few
//! pieces are faster. Both follow the request: a piece is a small share of it, so that the blocks that come after it
//! in the same place, which are of its size as a rule, fill many pieces. A pool that holds much may have larger ones:
//! what one of them keeps is a small share of what is held.
//!
//! The shares were chosen on recordings (docs/measurements/2026-11-25-pages.md).

use crate::pool::state::State;

/// Where memory comes and goes, a piece is this share of the request, of one or two pages or this share of what is held.
const OF_WHAT_GOES: u64 = 16;
const PAGES_OF_WHAT_GOES: u64 = 2;
const OF_HELD_THAT_GOES: u64 = 2048;
/// Where it stays (the weights of a model, and all that comes before the first free), a larger one.
const OF_WHAT_STAYS: u64 = 32;
const PAGES_OF_WHAT_STAYS: (u64, u64) = (2, 8);
/// Of pages above the driver's smallest more: who chose them wants few pieces.
const LARGE_PAGES_OF_WHAT_STAYS: (u64, u64) = (8, 16);
const SMALLEST_PAGE: u64 = 2 << 20;
const OF_HELD_THAT_STAYS: u64 = 512;
/// A request of gigabytes is got in about this many pieces, of at most 512 pages: 1 GiB of the smallest pages. One that is
/// larger than all that is allocated is got in fewer: it must be fast, and little will come beside it.
const PIECES_OF_LARGE: u64 = 256;
const PIECES_OF_LARGEST: u64 = 128;
const MOST_PAGES: u64 = 512;
/// From this number of pages on (8 GiB with pages of 2 MiB) such a request usually reserves memory for the rest of the run: a
/// key-value cache, or what a framework preallocates.
const VAST: u64 = 4096;
const PIECES_OF_VAST: u64 = 16;
/// The first and last pieces of the memory that it gets have about this number of pages, and those further in more: after its end
/// small blocks are cut from its ends, and keep no more than the pieces there.
const PAGES_AT_ENDS: u64 = 32;
/// During a first fill a small request gets memory for those that come after it: this share of what is allocated, and
/// at most 16 pages.
const AHEAD: u64 = 2048;
const MOST_PAGES_AHEAD: u64 = 16;

impl<E: Copy> State<E> {
    /// Bytes of the next piece of new memory for a request of `need` bytes, of which `room` bytes lack memory here, and `done`
    /// bytes before them got it.
    pub fn piece_size(&self, need: u64, done: u64, room: u64) -> u64 {
        let page = self.settings.page;
        let (pages, held) = (need / page, self.stats.reserved / page);
        let piece = if self.freed_more_than(16) {
            let most = PAGES_OF_WHAT_GOES.max(held / OF_HELD_THAT_GOES);
            let share = (pages / OF_WHAT_GOES).clamp(1, most);
            (share * page).max(self.settings.piece)
        } else {
            let (least, most) = if page > SMALLEST_PAGE {
                LARGE_PAGES_OF_WHAT_STAYS
            } else {
                PAGES_OF_WHAT_STAYS
            };
            let of_held = (held / OF_HELD_THAT_STAYS).min(MOST_PAGES);
            let share = (pages / OF_WHAT_STAYS).clamp(least.max(of_held), most.max(of_held));
            let of_large = match need > self.stats.allocated {
                true if pages >= VAST => {
                    let to_ends = done.min(room / 2) / page;
                    (pages / PIECES_OF_VAST).min(to_ends.max(PAGES_AT_ENDS))
                }
                true => (pages / PIECES_OF_LARGEST).min(MOST_PAGES),
                false => (pages / PIECES_OF_LARGE).min(MOST_PAGES),
            };
            share.max(of_large) * page
        };
        room.min(piece)
    }

    /// Bytes, in whole pages, that a request gets at least if it needs new memory: what it does not use is free for the
    /// next. 0 unless memory is being filled for the first time.
    pub fn ahead(&self) -> u64 {
        if self.freed_more_than(64) {
            return 0;
        }
        let page = self.settings.page;
        (self.stats.allocated / AHEAD / page).min(MOST_PAGES_AHEAD) * page
    }

    /// Whether more than this share of what is allocated was freed since the pool was last empty.
    fn freed_more_than(&self, share: u64) -> bool {
        self.stats.freed_bytes - self.calm > self.stats.allocated / share
    }
}
