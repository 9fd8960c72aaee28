//! A timeline made of events alone, for recordings that keep none.

use std::borrow::Borrow;

use super::{Ledger, Timeline};
use crate::clock::{Calibration, Pair};
use crate::reader::Record;

impl Timeline {
    /// Of all events of a run, in the order of time.
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
