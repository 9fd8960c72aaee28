//! The level of live memory, and its falls after which it stays lower.

use std::collections::VecDeque;

use crate::ledger::{Block, Visitor};
use crate::loops::Start;
use gpushim_trace::{Kind, Record, flags};

/// A fall must end lower than this many falls before it. With gradient accumulation, one iteration
/// in a few falls deeper.
const EARLIER: usize = 32;
/// Iterations after which the start of a run is over.
const FEW: usize = 4;
/// A run goes on if it makes at least one block again for this many before.
const AGAIN: u64 = 3;
/// A level that is lower by less than 1/`SAME` of the least fall is the same.
const SAME: u64 = 32;

/// A level of live memory at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Point {
    /// Time, ns since the start.
    pub ns: u64,
    /// The place of the event that made it.
    pub ticket: u64,
    /// Sum of live blocks, bytes.
    pub bytes: u64,
    /// Bytes allocated until then.
    allocated: u64,
    /// Blocks allocated until then.
    blocks: u64,
    /// Bytes that contexts took with them until then.
    gone: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Fall {
    /// The highest level, at its beginning.
    pub from: Point,
    /// The lowest level, at its end.
    pub to: Point,
    /// The highest level after it, bytes.
    highest: u64,
}

impl Fall {
    /// Returns the bytes by which memory fell.
    pub fn bytes(&self) -> u64 {
        self.from.bytes.saturating_sub(self.to.bytes)
    }

    /// Returns the bytes by which memory stays lower.
    pub fn stays(&self) -> u64 {
        self.from.bytes.saturating_sub(self.highest)
    }

    /// Returns true if a run went on after it until a later moment: it allocated as many bytes
    /// again as were live, or a third as many blocks as before.
    fn is_over(&self, now: &Point) -> bool {
        let blocks = now.blocks.saturating_sub(self.to.blocks);
        let bytes = now.allocated.saturating_sub(self.to.allocated);
        bytes >= self.from.bytes || blocks > 0 && blocks >= self.to.blocks / AGAIN
    }

    /// Returns true if a context that was reset or destroyed took most of the memory.
    pub fn is_reset(&self) -> bool {
        self.to.gone.saturating_sub(self.from.gone) > self.bytes() / 2
    }
}

/// Follows the level of live memory.
#[derive(Default)]
pub struct Levels {
    least: u64,
    /// The event at which the start of the run is over.
    under_way: u64,
    now: Point,
    /// The current fall, if it is large enough.
    fall: Fall,
    /// Ends of the latest falls, bytes.
    lows: VecDeque<u64>,
    /// The lowest level before the first fall, once the run was under way.
    floor: Option<u64>,
    /// Falls that last if memory stays lower.
    falls: Vec<Fall>,
}

impl Levels {
    /// Begins with this many live bytes. A fall is one of `least` bytes.
    /// The run is under way after a few iterations.
    pub fn new(live: u64, least: u64, starts: &[Start]) -> Levels {
        let mut levels = Levels::default();
        levels.now.bytes = live;
        levels.least = least;
        levels.under_way = starts.get(FEW - 1).map_or(u64::MAX, |start| start.ticket);
        levels
    }

    /// Returns the fall after which memory stays lower by most, if the run goes on.
    pub fn finish(mut self) -> Option<Fall> {
        self.begin();
        let mut highest = 0;
        for fall in self.falls.iter_mut().rev() {
            highest = fall.highest.max(highest);
            fall.highest = highest;
        }
        let lasting = self.falls.into_iter().rev().filter(|fall| {
            (fall.is_reset() || fall.stays() >= self.least) && fall.is_over(&self.now)
        });
        lasting.max_by_key(|fall| (fall.stays(), fall.bytes()))
    }

    /// Begins anew; keeps the current fall, if it is large enough and deeper than the falls before
    /// it.
    fn begin(&mut self) {
        let fall = self.fall;
        if fall.bytes() >= self.least {
            let earlier = self.lows.iter().min().copied().or(self.floor);
            let below = earlier.unwrap_or(0).saturating_sub(fall.to.bytes);
            self.lows.push_front(fall.to.bytes);
            self.lows.truncate(EARLIER);
            if below >= self.least || fall.is_reset() {
                self.falls.push(fall);
            }
        }
        self.fall = Fall {
            from: self.now,
            to: self.now,
            highest: self.now.bytes,
        };
    }
}

impl Visitor for Levels {
    fn event(&mut self, record: &Record) {
        (self.now.ns, self.now.ticket) = (record.ns, record.ticket);
        if record.event.kind == Kind::ContextGone {
            // Earlier frees have other causes.
            self.begin();
        }
    }

    fn allocated(&mut self, block: &Block) {
        self.now.allocated = self.now.allocated.saturating_add(block.size);
        self.now.blocks += 1;
        let level = self.now.bytes.saturating_add(block.size);
        self.now.bytes = level;
        for fall in self.falls.last_mut().into_iter().chain([&mut self.fall]) {
            fall.highest = fall.highest.max(level);
        }
        let is_large = self.fall.bytes() >= self.least;
        let rises = level.saturating_sub(self.fall.to.bytes) >= self.least;
        let is_over = rises || self.fall.is_over(&self.now);
        if level >= self.fall.from.bytes || is_large && is_over {
            self.begin();
        }
        let is_first = self.lows.is_empty() && self.fall.bytes() < self.least;
        if is_first && self.now.ticket >= self.under_way {
            self.floor = Some(self.floor.map_or(level, |floor| floor.min(level)));
        }
    }

    fn freed(&mut self, block: &Block, at: &Record) {
        self.now.bytes = self.now.bytes.saturating_sub(block.size);
        let is_ended = at.event.flags & flags::ENDED != 0;
        if is_ended || at.event.kind == Kind::ContextGone {
            self.now.gone = self.now.gone.saturating_add(block.size);
        }
        // If a level varies a little, the fall to it ended when it was reached.
        let deeper = self.fall.to.bytes.saturating_sub(self.now.bytes);
        if deeper > 0 && (self.fall.bytes() < self.least || deeper >= self.least / SAME) {
            (self.fall.to, self.fall.highest) = (self.now, self.now.bytes);
        }
    }
}
