//! The second pass over a run: follows the blocks of a focus, with the iterations and the moments that the first pass found.

use super::journal::{Journal, What};
use super::kept::{Kept, Lifetimes};
use super::locate::Locator;
use super::{Given, Iterations, Search, Start};
use crate::ledger::{Block, Focus, Highest, Unseen, Visitor, Walker, in_order};
use crate::recording::{Reader, Recording, read};
use gpushim_trace::Record;

/// Follows blocks.
pub struct Follow<'a> {
    recording: &'a dyn Recording,
    walker: Walker,
    locator: Option<Locator>,
    /// Moments that are still to come, each with its place in the answer; the first one last.
    moments: Vec<(u64, usize)>,
    live_at: Vec<(u64, Vec<Block>)>,
    notes: Notes,
    last_ns: u64,
}

/// What there is to say of the blocks of a run.
#[derive(Debug, Default)]
pub struct Followed {
    /// The iterations, if there are any.
    pub iterations: Option<Iterations>,
    /// When the last one began, or the run ended where there are none, ns since the start.
    pub last_ns: u64,
    /// What was live then, and what of it iterations left behind.
    pub kept: Kept,
    /// The blocks that were live at each requested moment, the oldest first.
    pub live_at: Vec<Vec<Block>>,
    /// What happened around the moment that was watched.
    pub journal: Option<Journal>,
    /// The highest level by stretch of the run.
    pub highest: Highest,
}

impl<'a> Follow<'a> {
    /// Of a focus, with what tells the iterations, and moments: each the place of the first event after it. What
    /// happens around one of them can be watched.
    pub fn new(
        recording: &'a dyn Recording,
        focus: Focus,
        locator: Option<Locator>,
        moments: &[u64],
        watched: Option<u64>,
    ) -> Follow<'a> {
        let live_at = moments.iter().map(|moment| (*moment, Vec::new()));
        let live_at = live_at.collect();
        let mut moments: Vec<(u64, usize)> = moments.iter().copied().zip(0..).collect();
        moments.sort_unstable_by(|a, b| b.cmp(a));
        let are_set = locator.as_ref().is_some_and(Locator::is_set);
        Follow {
            recording,
            walker: Walker::new(recording, focus),
            locator,
            live_at,
            moments,
            notes: Notes {
                journal: watched.map(Journal::around),
                lifetimes: Lifetimes::of_iterations(are_set),
                ..Notes::default()
            },
            last_ns: 0,
        }
    }

    fn feed(&mut self, record: &Record) {
        let locator = self.locator.as_mut();
        if locator.is_some_and(|locator| locator.feed(self.recording, record)) {
            let here = Start {
                ns: record.ns,
                ticket: record.ticket,
            };
            self.notes.begin(self.recording, here);
        }
        while let Some((_, place)) = self.moments.pop_if(|(ticket, _)| *ticket <= record.ticket) {
            self.look(place);
        }
        self.walker.feed(record, &mut self.notes);
        self.last_ns = record.ns;
    }

    fn look(&mut self, place: usize) {
        if let Some((_, live)) = self.live_at.get_mut(place) {
            *live = in_order(self.walker.live().clone());
        }
    }

    /// After the last event.
    pub fn finish(mut self) -> Followed {
        self.walker.finish(&mut self.notes);
        while let Some((_, place)) = self.moments.pop() {
            self.look(place);
        }
        let (notes, locator) = (self.notes, self.locator);
        let begun = notes.lifetimes.begun();
        let live = self.walker.live().clone();
        let kept = notes.lifetimes.finish(self.recording, live, &notes.unseen);
        // Blocks of before the recording come first: they are the oldest.
        let with_unseen = |(ticket, live): (u64, Vec<Block>)| {
            let unseen: Vec<Block> = notes.unseen.live_at(ticket).collect();
            [unseen, live].concat()
        };
        Followed {
            iterations: locator.map(|locator| locator.finish(self.recording, &kept)),
            last_ns: begun.map_or(self.last_ns, |begun| begun.ns),
            kept,
            live_at: self.live_at.into_iter().map(with_unseen).collect(),
            journal: notes.journal,
            highest: notes.highest,
        }
    }
}

impl Followed {
    /// Looks for the iterations of a focus, unless it is given what they begin with, and follows its blocks through them:
    /// two passes over the events, or one.
    pub fn of(recording: &dyn Recording, focus: Focus, given: Option<&Given>) -> Followed {
        let locator = match given {
            Some(given) => Some(Locator::given(given)),
            None => {
                let mut search = Search::new(recording, focus);
                read(recording, &mut [&mut search]);
                search.choose()
            }
        };
        let mut follow = Follow::new(recording, focus, locator, &[], None);
        read(recording, &mut [&mut follow]);
        follow.finish()
    }
}

impl Reader for Follow<'_> {
    fn read(&mut self, records: &[Record]) {
        records.iter().for_each(|record| self.feed(record));
    }
}

/// What is kept while blocks come and go.
#[derive(Debug, Default)]
struct Notes {
    lifetimes: Lifetimes,
    unseen: Unseen,
    journal: Option<Journal>,
    highest: Highest,
}

impl Notes {
    fn begin(&mut self, recording: &dyn Recording, here: Start) {
        self.lifetimes.begin(recording, here);
        if let Some(journal) = &mut self.journal {
            journal.begin(here.ticket);
        }
    }
}

impl Visitor for Notes {
    fn event(&mut self, record: &Record) {
        if let Some(journal) = &mut self.journal {
            journal.event(record);
        }
    }

    fn allocated(&mut self, block: &Block) {
        let now = self.lifetimes.allocated(block);
        self.highest.allocated(block.size, now);
        if let Some(journal) = self.journal.as_mut().filter(|_| block.ticket > 0) {
            journal.note(block.ticket, block.thread, What::Allocated(block.stack));
        }
    }

    fn freed(&mut self, block: &Block, at: &Record) {
        self.lifetimes.freed(block);
        if let Some(journal) = &mut self.journal {
            journal.note(at.ticket, at.event.thread, What::Freed(block.address));
        }
    }

    fn freed_unseen(&mut self, block: &Block, at: &Record) {
        self.unseen.ended(block, at);
    }

    fn never_freed(&mut self, rest: &Block) {
        self.unseen.never_ended(rest);
    }
}

#[cfg(test)]
mod tests;
