//! Timeline made of events alone, for recordings without one.

use std::borrow::Borrow;

use super::{Ledger, Timeline};
use crate::clock::{Calibration, Pair};
use crate::reader::Record;

impl Timeline {
    /// Returns the timeline of all events of a run, given in the order of time.
    pub fn of<R: Borrow<Record>>(events: impl IntoIterator<Item = R>) -> Timeline {
        let words = Ledger::words();
        let mut ledger = Ledger::create(&words, 0);
        for record in events {
            let record = record.borrow();
            ledger.feed(&words, record.ns, &record.event);
        }
        // Ticks are ns.
        let pair = |ns| Pair { ticks: ns, ns };
        let clock = Calibration {
            start: pair(0),
            later: pair(1 << 30),
        };
        ledger.timeline(&words, clock, true)
    }
}
