//! Background work of the writing process for a trace: follows the ring and keeps the timeline.

use std::fmt;
use std::sync::Arc;

use super::tail::{Missed, Tail, Tailed};
use super::timeline::Ledger;
use super::writer::Writer;

/// Time for which an event is held back, ms, because other threads may be publishing earlier ones.
const HOLD_BACK_MS: u64 = 1;
/// Interval at which the timeline's sums are taken anew while they may be wrong, ms. Each time
/// reads the whole live table.
const RESYNC_MS: u64 = 1000;

/// Function that returns the bytes that pools hold from the driver on a device. This is the sum of
/// all [`Kind::Reserve`](super::Kind::Reserve) and [`Kind::Release`](super::Kind::Release), missed
/// ones included. `None` if it is unknown now.
pub type Held = Box<dyn FnMut(u8) -> Option<u64> + Send>;

/// Follows the ring of a writer and keeps its timeline. A writer must have at most one.
///
/// ```
/// use gpushim_trace::{Class, Event, Kind, Trace, TimelineFollower, Writer, WriterOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("run.trace");
/// let writer = Writer::create(&path, &WriterOptions::default())?;
/// let mut follower = TimelineFollower::new(&writer, None);
/// writer.record_alloc(&Event { device: 0, address: 0x1000, size: 512, ..Event::new(Kind::Alloc, Class::Device) });
/// // On a background thread each 10 to 100 ms `follower.poll()`, and at the end:
/// follower.flush_with(&mut |_| {});
/// assert_eq!(follower.missed().total(), 0);
/// assert!(Trace::open(&path)?.timeline().is_complete);
/// # Ok(())
/// # }
/// ```
pub struct TimelineFollower {
    tail: Tail,
    ledger: Ledger,
    ticks_per_ms: u64,
    missed: Missed,
    held: Option<Held>,
    /// Ticks at which the sums were last taken anew.
    resynced: u64,
}

impl fmt::Debug for TimelineFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TimelineFollower");
        shown
            .field("tail", &self.tail)
            .field("ledger", &self.ledger);
        shown.finish_non_exhaustive()
    }
}

impl TimelineFollower {
    /// Begins the timeline, with the first event ever recorded.
    ///
    /// The sums may be wrong after missed events, or after the end of a context. Then they are
    /// taken anew from the live table and the totals. This is repeated each second until no event
    /// occurs meanwhile. The bytes held by pools are in neither table: without `held` the sums stay
    /// wrong.
    pub fn new(writer: &Writer, held: Option<Held>) -> TimelineFollower {
        let tail = Tail::new(writer);
        let ledger = Ledger::create(tail.mapped().timeline(), writer.start_ticks())
            .within(tail.mapped().timeline_room());
        TimelineFollower {
            tail,
            ledger,
            ticks_per_ms: writer.ticks_per_ms(),
            missed: Missed::default(),
            held,
            resynced: 0,
        }
    }

    /// Adds the events recorded since the last poll to the timeline. Call it every 10 to 100 ms, so
    /// that the ring is not lapped in between. Cheap when there is no event. Does nothing in a
    /// forked child.
    pub fn poll(&mut self) {
        self.poll_with(&mut |_| {});
    }

    /// Polls like [`TimelineFollower::poll`], and hands the events on like [`Tail::poll`].
    pub fn poll_with(&mut self, sink: &mut dyn FnMut(&[Tailed])) {
        let hold_back = self.ticks(HOLD_BACK_MS);
        self.follow(sink, |tail, sink| tail.poll(hold_back, sink));
        if self.tail.now().saturating_sub(self.resynced) >= self.ticks(RESYNC_MS) {
            self.resync();
        }
    }

    /// Adds all recorded events to the timeline, however young, and hands them on: for the end.
    pub fn flush_with(&mut self, sink: &mut dyn FnMut(&[Tailed])) {
        self.follow(sink, |tail, sink| tail.flush(sink));
        self.resync();
    }

    fn follow(
        &mut self,
        sink: &mut dyn FnMut(&[Tailed]),
        ask: impl FnOnce(&mut Tail, &mut dyn FnMut(&[Tailed])),
    ) {
        if !self.tail.mapped().is_ours() || self.tail.mapped().is_lost() {
            return;
        }
        let mapped = Arc::clone(self.tail.mapped());
        let (words, ledger) = (mapped.timeline(), &mut self.ledger);
        let mut fed = false;
        ask(&mut self.tail, &mut |events| {
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

    /// Takes the timeline's sums anew, if they may be wrong.
    fn resync(&mut self) {
        let Some(held) = &mut self.held else { return };
        let mapped = self.tail.mapped();
        if !self.ledger.is_unsure || !mapped.is_ours() || mapped.is_lost() {
            return;
        }
        let from = self.tail.now();
        let sums = self.tail.mapped().sums(held);
        let to = self.tail.now();
        // Older events were published when the look-up began.
        let from = from.saturating_sub(self.ticks(HOLD_BACK_MS));
        self.ledger
            .resync(self.tail.mapped().timeline(), (from, to), &sums);
        self.resynced = to;
    }

    fn ticks(&self, ms: u64) -> u64 {
        self.ticks_per_ms.saturating_mul(ms)
    }

    /// Returns the numbers of events missed so far.
    pub fn missed(&self) -> Missed {
        self.missed
    }

    /// Returns the number of slots of the ring, and of slots that threads have reached so far, laps
    /// included.
    pub fn progress(&self) -> (u64, u64) {
        self.tail.progress()
    }
}

#[cfg(test)]
mod tests;
