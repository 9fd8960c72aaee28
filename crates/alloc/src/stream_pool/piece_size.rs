//! How large a new piece is. Each costs the same 32 µs to get, from 2 to 256 MiB (measured on an H100), so few large ones are
//! best, as long as none is held by a block that is a fraction of it.

use super::state::State;

/// Bytes of the largest piece, for a large request whose memory stays.
const LARGEST: u64 = 1 << 30;
/// Bytes of the least such request: in smaller pieces its calls would take far longer than `cuMemAlloc`, which takes 81 µs
/// for it.
const LARGE: u64 = 512 << 20;
/// Pages of the largest piece of any other request: 32 MiB of the smallest pages, by which the driver's own pools grow. A
/// piece may be cut while work still uses it, and be held by what is left: the larger it is, the more that is.
const LARGEST_OF_MANY: u64 = 16;
/// Pieces that a request is made of where memory comes and goes.
const PIECES: u64 = 16;

impl<E: Copy> State<E> {
    /// Bytes of the next new piece, where `room` bytes lack memory for a request of `need` bytes. If the request ends within
    /// the last page, that has a piece of its own, as the next block begins in it.
    pub fn piece_size(&self, room: u64, need: u64, ends_within: bool) -> u64 {
        let page = self.settings.page;
        let room = match ends_within && room > page {
            true => room - page,
            false => room,
        };
        let many = page.saturating_mul(LARGEST_OF_MANY);
        let largest = if self.churns() {
            let least = self.settings.piece.max(page);
            let part = (need / PIECES).next_multiple_of(page);
            part.clamp(least, least.max(many))
        } else if need < LARGE {
            many
        } else {
            LARGEST.max(page) / page * page
        };
        room.min(largest)
    }

    /// Whether memory comes and goes. A model's weights come and stay, and so does the first request of an empty pool: their
    /// pieces need not be small. (With an eighth instead of a sixteenth a checkpointed GPT-2 holds 0.8 % more, for no fewer
    /// calls.)
    fn churns(&self) -> bool {
        self.stats.freed_bytes - self.calm > self.stats.allocated / 16
    }
}
