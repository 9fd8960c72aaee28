//! Blocks from before the recording, of which only the free is known.

use super::block::Block;
use gpushim_trace::Record;

/// Older blocks of which only the end is known, in the order of their ends. Memory grows with the
/// blocks that were live when the recording began.
#[derive(Clone, Debug, Default)]
pub struct Unseen {
    /// Blocks, each with the place of the event that ended it; `u64::MAX` if none did.
    all: Vec<(u64, Block)>,
}

impl Unseen {
    /// Adds a block that an event ended.
    pub fn ended(&mut self, block: &Block, at: &Record) {
        self.all.push((at.ticket, *block));
    }

    /// Adds memory that is live after the last event, too.
    pub fn never_ended(&mut self, rest: &Block) {
        self.all.push((u64::MAX, *rest));
    }

    /// Returns the blocks that were live just before the event of this place.
    pub fn live_at(&self, ticket: u64) -> impl Iterator<Item = Block> + '_ {
        let later = self.all.iter().filter(move |(end, _)| *end >= ticket);
        later.map(|(_, block)| *block)
    }

    /// Adds their bytes to levels that were taken without them, in the order of time. The n-th
    /// level was taken just before the event of the n-th place.
    pub fn add_to(&self, levels: &mut [u64], place: impl Fn(usize) -> Option<u64>) {
        let mut ends = self.all.iter().rev().peekable();
        let mut bytes = 0_u64;
        for (number, level) in levels.iter_mut().enumerate().rev() {
            let place = place(number).unwrap_or(u64::MAX);
            while let Some((_, block)) = ends.next_if(|(end, _)| *end >= place) {
                bytes = bytes.saturating_add(block.size);
            }
            *level = level.saturating_add(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushim_trace::{Class, Event, Kind};

    #[test]
    fn levels_have_what_ends_later() {
        let event = Event::new(Kind::Free, Class::Device);
        let mut unseen = Unseen::default();
        for (ticket, size) in [(3, 1), (7, 10)] {
            let block = Block::new(0, 0, &Event { size, ..event });
            let ns = ticket;
            unseen.ended(&block, &Record { ticket, ns, event });
        }
        unseen.never_ended(&Block::new(0, 0, &Event { size: 100, ..event }));
        let places = [1, 3, 4, 7, 8];
        let mut levels = [1000, 0, 0, 0, 0];
        unseen.add_to(&mut levels, |number| places.get(number).copied());
        assert_eq!(levels, [1111, 111, 110, 110, 100]);
        for (place, level) in places.into_iter().zip([111, 111, 110, 110, 100]) {
            let live: u64 = unseen.live_at(place).map(|block| block.size).sum();
            assert_eq!(live, level);
        }
    }
}
