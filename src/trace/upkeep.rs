//! What a background thread of the writing process does for a trace: follows the ring, and keeps the
//! timeline.

use super::tail::{Missed, Tail, Tailed};
use super::timeline::{Current, Ledger};
use super::writer::Writer;

/// How long an event is held back, ms, for those that other threads are just publishing.
const HOLD_BACK_MS: u64 = 1;

/// Follows the ring of a writer and keeps its timeline. There is one for each writer.
#[derive(Debug)]
pub struct Upkeep {
    tail: Tail,
    ledger: Ledger,
    hold_back: u64,
    missed: Missed,
}

impl Upkeep {
    /// Begins the timeline, with the first event that was ever recorded.
    pub fn new(writer: &Writer) -> Upkeep {
        let tail = Tail::new(writer);
        let ledger = Ledger::create(tail.mapped().timeline(), writer.start_ticks());
        Upkeep {
            tail,
            ledger,
            hold_back: writer.ticks_per_ms().saturating_mul(HOLD_BACK_MS),
            missed: Missed::default(),
        }
    }

    /// Takes what was recorded since the last time into the timeline. To be called so often that the
    /// ring is not lapped in between: each 10 to 100 ms. Cheap when nothing happened. In a forked child
    /// nothing is done.
    pub fn poll(&mut self) {
        self.poll_with(&mut |_| {});
    }

    /// As [`Upkeep::poll`], and hands the events on, as [`Tail::poll`] does.
    pub fn poll_with(&mut self, sink: &mut dyn FnMut(&[Tailed])) {
        self.follow(sink, |tail, hold_back, sink| tail.poll(hold_back, sink));
    }

    /// Takes all that is recorded into the timeline, however young, and hands it on: for the end.
    pub fn flush_with(&mut self, sink: &mut dyn FnMut(&[Tailed])) {
        self.follow(sink, |tail, _, sink| tail.flush(sink));
    }

    fn follow(
        &mut self,
        sink: &mut dyn FnMut(&[Tailed]),
        ask: impl FnOnce(&mut Tail, u64, &mut dyn FnMut(&[Tailed])),
    ) {
        if !self.tail.mapped().is_ours() {
            return;
        }
        let mapped = std::sync::Arc::clone(self.tail.mapped());
        let (words, ledger) = (mapped.timeline(), &mut self.ledger);
        let mut fed = false;
        ask(&mut self.tail, self.hold_back, &mut |events| {
            for one in events {
                ledger.feed(words, one.ticks(), &one.event());
            }
            fed |= !events.is_empty();
            sink(events);
        });
        let missed = self.tail.missed();
        if missed != self.missed {
            self.missed = missed;
            ledger.gap();
            fed = true;
        }
        if fed {
            ledger.turns = self.tail.turns();
            ledger.commit(words);
        }
    }

    /// Whether the timeline's sums may be wrong, because events were missed or a context went with
    /// memory: then [`Upkeep::resync`] puts them right.
    pub fn wants_sums(&self) -> bool {
        self.ledger.is_unsure
    }

    /// Takes the timeline's sums anew, as they are now. Events that are recorded at the same moment may
    /// be in them or not: each can leave the sums off by its size.
    pub fn resync(&mut self, sums: &[Current]) {
        if self.tail.mapped().is_ours() {
            let now = self.tail.now();
            self.ledger.resync(self.tail.mapped().timeline(), now, sums);
        }
    }

    /// What was missed so far.
    pub fn missed(&self) -> Missed {
        self.missed
    }

    /// Slots of the ring, and how many of them threads have reached so far, laps included.
    pub fn progress(&self) -> (u64, u64) {
        self.tail.progress()
    }
}
