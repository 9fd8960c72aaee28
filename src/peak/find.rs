//! The stacks that held memory at the peak, or at another moment.

use serde::Serialize;

use crate::ledger::{Block, Focus, Held, LiveAt, Moment, Visitor, by_stack, walk};
use crate::output::owned::owned;
use crate::recording::{Owned, Recording};
use gpushim_trace::Record;

/// Live memory at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// By owner, those with most bytes first, as far as owners were recorded.
    pub owners: Vec<Owned>,
}

impl Peak {
    /// Analyses one moment of a run.
    pub fn at(recording: &dyn Recording, focus: Focus, moment: Moment) -> Peak {
        let mut find = Find {
            moment,
            now: 0,
            highest: None,
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

    /// Groups the blocks that were live at a moment: ns since the start, and the place of the first
    /// event after it.
    pub fn of(recording: &dyn Recording, (ns, ticket): (u64, u64), live: &[Block]) -> Peak {
        Peak {
            ns,
            ticket,
            bytes: live
                .iter()
                .fold(0, |sum, block| sum.saturating_add(block.size)),
            blocks: live.len() as u64,
            holders: by_stack(recording, live),
            owners: owned(recording, live),
        }
    }
}

/// Finds the moment: its time, and the place of the first event after it.
struct Find {
    moment: Moment,
    /// Live bytes minus the initial bytes of older blocks of which only the end is known. It may be
    /// negative.
    now: i128,
    /// The highest level; `None` before the first event.
    highest: Option<i128>,
    passed: bool,
    at: (u64, u64),
    last: (u64, u64),
}

impl Visitor for Find {
    fn event(&mut self, record: &Record) {
        self.last = (record.ns, record.ticket);
        match self.moment {
            Moment::Peak if self.highest.is_none() => {
                // Older memory was there before the first event.
                (self.at, self.highest) = (self.last, Some(self.now));
            }
            Moment::Ns(ns) if !self.passed && record.ns > ns => {
                (self.at, self.passed) = ((ns, record.ticket), true);
            }
            _ => {}
        }
    }

    fn allocated(&mut self, block: &Block) {
        self.now += i128::from(block.size);
        if self.moment == Moment::Peak && self.highest.is_some_and(|most| self.now > most) {
            self.highest = Some(self.now);
            self.at = (block.ns, block.ticket.saturating_add(1));
        }
    }

    fn freed(&mut self, block: &Block, _: &Record) {
        self.now -= i128::from(block.size);
    }
}

#[cfg(test)]
mod tests;
