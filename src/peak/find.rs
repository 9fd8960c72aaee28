//! Who held memory at a moment: when most was live, or any other.

use serde::Serialize;

use crate::ledger::{Block, Focus, Held, LiveAt, Moment, Visitor, by_stack, walk};
use crate::recording::Recording;
use gpushim_trace::Record;

/// What was live at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Peak {
    /// Ns since the start.
    pub ns: u64,
    /// The place of the first event after it.
    pub ticket: u64,
    /// Bytes that were live.
    pub bytes: u64,
    /// Blocks that were.
    pub blocks: u64,
    /// By stack, those with most bytes first.
    pub holders: Vec<Held>,
}

impl Peak {
    /// Looks at a moment.
    pub fn at(recording: &dyn Recording, focus: Focus, moment: Moment) -> Peak {
        let mut find = Find {
            moment,
            now: 0,
            highest: 0,
            passed: false,
            at: (0, 0),
            last: (0, 0),
        };
        walk(recording, focus, &mut [&mut find]);
        let (ns, ticket) = match moment {
            Moment::Peak => find.at,
            Moment::Ns(_) if find.passed => find.at,
            Moment::Ns(_) | Moment::End => (find.last.0, u64::MAX),
        };
        let mut live = LiveAt::new(ticket);
        walk(recording, focus, &mut [&mut live]);
        Peak::of(recording, (ns, ticket), &live.into_blocks())
    }

    /// Of the blocks that were live at a moment: ns since the start, and the place of the first event after it.
    pub fn of(recording: &dyn Recording, (ns, ticket): (u64, u64), live: &[Block]) -> Peak {
        Peak {
            ns,
            ticket,
            bytes: live
                .iter()
                .fold(0, |sum, block| sum.saturating_add(block.size)),
            blocks: live.len() as u64,
            holders: by_stack(recording, live),
        }
    }
}

/// Finds the moment: its time, and the place of the first event after it.
struct Find {
    moment: Moment,
    now: u64,
    highest: u64,
    passed: bool,
    at: (u64, u64),
    last: (u64, u64),
}

impl Visitor for Find {
    fn event(&mut self, record: &Record) {
        self.last = (record.ns, record.ticket);
        if let Moment::Ns(ns) = self.moment
            && !self.passed
            && record.ns > ns
        {
            (self.at, self.passed) = ((ns, record.ticket), true);
        }
    }

    fn allocated(&mut self, block: &Block) {
        self.now = self.now.saturating_add(block.size);
        if self.moment == Moment::Peak && self.now > self.highest {
            self.highest = self.now;
            // Older blocks come before the first event.
            self.at = (block.ns, block.ticket.saturating_add(1));
        }
    }

    fn freed(&mut self, block: &Block, _: &Record) {
        self.now = self.now.saturating_sub(block.size);
    }
}

#[cfg(test)]
mod tests;
