//! Follows the blocks and collects those that a fall consists of.

use std::collections::VecDeque;

use super::fall::{Drop, Fall, Fallen, Gone};
use super::gather::Gather;
use super::swing::{Point, Swing, Turn};
use crate::ledger::{Block, Segments, Visitor};
use gpushim_trace::{Event, Kind, Record};

/// A fall is deeper than usual if it is deeper than this many falls before it: with gradient accumulation, the falls of
/// one iteration in a few are.
const EARLIER: usize = 32;

/// Iterations after which the start of a run is over.
const FEW: usize = 4;

/// Finds the falls of live memory and of reserved memory.
pub(super) struct Falls<'a> {
    live: Swing,
    now: u64,
    /// Where the latest falls ended.
    lows: VecDeque<u64>,
    /// The lowest level before the first fall, once the run was under way.
    floor: Option<u64>,
    gone: Vec<Gone>,
    /// How many of these belong to the fall as far as it has gone.
    until_low: usize,
    gather: Gather<'a>,
    held: Swing,
    segments: Segments,
    given_back: Option<Drop>,
}

impl<'a> Falls<'a> {
    /// With what was held at the beginning, and bytes of the blocks that were live then and that only their ends tell
    /// of.
    pub fn new(
        (segments, unseen): (Segments, u64),
        gather: Gather<'a>,
        least_held: u64,
    ) -> Falls<'a> {
        Falls {
            live: Swing::new(gather.least),
            now: unseen,
            lows: VecDeque::new(),
            floor: None,
            gone: Vec::new(),
            until_low: 0,
            gather,
            held: Swing::new(least_held),
            segments,
            given_back: None,
        }
    }

    /// All of them.
    pub fn finish(mut self) -> Vec<Drop> {
        if let Some((from, to)) = self.live.finish() {
            self.fell(from, to);
        }
        if let Some((from, to)) = self.held.finish() {
            self.gave_back(from, to);
        }
        let mut drops = self.gather.finish();
        drops.extend(self.given_back);
        drops
    }

    fn point(&self, ns: u64, ticket: u64) -> Point {
        Point {
            ns,
            ticket,
            bytes: self.now,
        }
    }

    fn feed(&mut self, ns: u64, ticket: u64) {
        match self.live.feed(self.point(ns, ticket)) {
            Turn::None => {}
            Turn::Low => {
                self.until_low = self.gone.len();
                self.gather.low();
            }
            Turn::High => {
                self.gone.clear();
                self.until_low = 0;
            }
            Turn::Fell(from, to) => {
                self.fell(from, to);
                self.gone.clear();
                self.until_low = 0;
            }
        }
    }

    /// The run is under way after a few iterations.
    fn stands(&mut self, ticket: u64) {
        if self.live.fell_from().is_none() && self.gather.begun(ticket) >= FEW {
            let floor = self.floor.unwrap_or(u64::MAX);
            self.floor = Some(floor.min(self.now));
        }
    }

    /// A fall is over, too, when the run goes on below where it began: as much has been allocated since as was
    /// live then, and memory has not come back.
    fn settle(&mut self, ns: u64, ticket: u64) {
        let is_over = |from: Point| self.gather.allocated_since_low() >= from.bytes;
        if self.live.fell_from().is_some_and(is_over)
            && let Some((from, to)) = self.live.finish()
        {
            self.fell(from, to);
            self.gone.clear();
            self.until_low = 0;
            self.live.begin(self.point(ns, ticket));
        }
    }

    fn fell(&mut self, from: Point, to: Point) {
        let mut gone = std::mem::take(&mut self.gone);
        gone.truncate(self.until_low);
        // Blocks that were allocated during the fall are not part of it.
        gone.retain(|gone| gone.block.ticket <= from.ticket);
        let low_before = self.lows.iter().min().copied().or(self.floor).unwrap_or(0);
        self.lows.push_back(to.bytes);
        if self.lows.len() > EARLIER {
            self.lows.pop_front();
        }
        self.gather.take(Fall {
            from,
            to,
            low_before,
            gone,
        });
    }

    fn gave_back(&mut self, from: Point, to: Point) {
        let one = Drop::trimmed(from, to);
        let Some(known) = &mut self.given_back else {
            self.given_back = Some(one);
            return;
        };
        known.times += 1;
        let fell = |one: &Fallen| one.from.saturating_sub(one.to);
        if fell(&one.largest) > fell(&known.largest) {
            known.largest = one.largest;
        }
    }
}

impl Visitor for Falls<'_> {
    fn event(&mut self, record: &Record) {
        self.segments.feed(record);
        if record.event.kind == Kind::ContextGone {
            // Earlier frees belong to other causes.
            if let Some((from, to)) = self.live.finish() {
                self.fell(from, to);
            }
            self.gone.clear();
            self.until_low = 0;
            let now = self.point(record.ns, record.ticket);
            self.live.begin(now);
        }
        let is_held = matches!(
            record.event.kind,
            Kind::Reserve | Kind::Release | Kind::Alloc | Kind::Free | Kind::ContextGone
        );
        if is_held {
            let now = Point {
                ns: record.ns,
                ticket: record.ticket,
                bytes: self.segments.cached(),
            };
            if let Turn::Fell(from, to) = self.held.feed(now) {
                self.gave_back(from, to);
            }
        }
    }

    fn allocated(&mut self, block: &Block) {
        self.now = self.now.saturating_add(block.size);
        self.gather.allocated(block.size, self.now);
        self.feed(block.ns, block.ticket);
        self.settle(block.ns, block.ticket);
        if self.lows.is_empty() {
            self.stands(block.ticket);
        }
    }

    fn freed(&mut self, block: &Block, at: &Record) {
        self.now = self.now.saturating_sub(block.size);
        let event: &Event = &at.event;
        self.gone.push(Gone {
            block: *block,
            by: event.stack,
            thread: event.thread,
            by_context: event.kind == Kind::ContextGone,
        });
        self.feed(at.ns, at.ticket);
    }

    fn freed_unseen(&mut self, block: &Block, at: &Record) {
        self.freed(block, at);
    }
}
