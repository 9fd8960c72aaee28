//! Size of a piece of new memory.
//!
//! A piece is mapped and moved as a whole. One block can keep all of it from being used elsewhere,
//! so small pieces withhold less memory. But few pieces are faster, because each costs 40 to 60 µs
//! to get (measured on an H100, the same from 2 to 256 MiB).
//!
//! The size follows the request. A piece is a small share of it, because later blocks in the same
//! place usually have the request's size and fill many pieces. A pool that holds much may have
//! larger pieces: one piece is then a small share of the memory held.
//!
//! The shares were chosen on recordings (docs/measurements/2026-11-25-pages.md).

use crate::pool::state::State;

/// Divisor of a request for its pieces, once memory is freed regularly. A piece has at most 2
/// pages, or this share of the memory held if that is more.
const OF_WHAT_GOES: u64 = 16;
const PAGES_OF_WHAT_GOES: u64 = 2;
const OF_HELD_THAT_GOES: u64 = 2048;
/// Divisor of a request for its pieces while memory stays: the weights of a model, and all memory
/// before the first frees. The limits in pages follow.
const OF_WHAT_STAYS: u64 = 32;
const PAGES_OF_WHAT_STAYS: (u64, u64) = (2, 8);
/// Limits for pages above the driver's smallest: users who choose them want few pieces.
const LARGE_PAGES_OF_WHAT_STAYS: (u64, u64) = (8, 16);
const SMALLEST_PAGE: u64 = 2 << 20;
const OF_HELD_THAT_STAYS: u64 = 512;
/// Number of pieces for a request of gigabytes, each of at most 512 pages: 1 GiB of the smallest
/// pages. A request larger than all allocated memory gets fewer: it must be fast, and little will
/// be allocated beside it.
const PIECES_OF_LARGE: u64 = 256;
const PIECES_OF_LARGEST: u64 = 128;
const MOST_PAGES: u64 = 512;
/// Number of pages (8 GiB with pages of 2 MiB) from which such a request usually reserves memory
/// for the rest of the run: a key-value cache, or a framework's preallocated memory.
const VAST: u64 = 4096;
const PIECES_OF_VAST: u64 = 16;
/// Number of pages of the first and last pieces of such a request; the pieces between are larger.
/// After it is freed, small blocks are cut from its ends, and so hold only the small pieces there.
const PAGES_AT_ENDS: u64 = 32;
/// Divisor of the allocated bytes. During a first fill, a small request gets this share in advance
/// for later requests, at most 16 pages.
const AHEAD: u64 = 2048;
const MOST_PAGES_AHEAD: u64 = 16;

impl<E: Copy> State<E> {
    /// Bytes of the next piece of new memory for a request of `need` bytes. Before it, `done` bytes
    /// have got memory here; `room` bytes still lack it.
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

    /// Minimum bytes of new memory, in whole pages, for a request that needs any. The part that it
    /// does not use is free for the next request. 0 unless memory is being filled for the first
    /// time.
    pub fn ahead(&self) -> u64 {
        if self.freed_more_than(64) {
            return 0;
        }
        let page = self.settings.page;
        (self.stats.allocated / AHEAD / page).min(MOST_PAGES_AHEAD) * page
    }

    /// True if more than 1/`share` of the allocated bytes was freed since the pool last gave back
    /// all free memory.
    fn freed_more_than(&self, share: u64) -> bool {
        self.stats.freed_bytes - self.calm > self.stats.allocated / share
    }
}
