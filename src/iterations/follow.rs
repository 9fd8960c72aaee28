//! Follows the blocks of a focus through a run, in one pass, once a first one has said what tells its iterations
//! and which moments are to be looked at.

use super::journal::{Journal, What};
use super::locate::Locator;
use super::{Iterations, Start};
use crate::ledger::{Block, Focus, Visitor, Walker, in_order};
use crate::recording::{Reader, Recording};
use gpushim_trace::Record;

/// Follows blocks.
pub struct Follow<'a> {
    recording: &'a dyn Recording,
    walker: Walker,
    locator: Option<Locator>,
    /// Moments that are still to come, each with its place in the answer; the first one last.
    moments: Vec<(u64, usize)>,
    live_at: Vec<Vec<Block>>,
    notes: Notes,
    last_ns: u64,
}

/// What there is to say of the blocks of a run.
#[derive(Debug, Default)]
pub struct Followed {
    /// The iterations, if there are any.
    pub iterations: Option<Iterations>,
    /// Bytes live at the beginning of each.
    pub levels: Vec<u64>,
    /// When the last one began, or the run ended where there are none, ns since the start.
    pub last_ns: u64,
    /// What was live then, the oldest first.
    pub live_at_last: Vec<Block>,
    /// What was live at each moment asked for, the oldest first.
    pub live_at: Vec<Vec<Block>>,
    /// What happened around the moment that was watched.
    pub journal: Option<Journal>,
}

impl<'a> Follow<'a> {
    /// Of a focus, with what tells the iterations, and moments: each the place of the first event after it. What
    /// happens around one of them can be watched, if there are iterations.
    pub fn new(
        recording: &'a dyn Recording,
        focus: Focus,
        locator: Option<Locator>,
        moments: &[u64],
        watched: Option<u64>,
    ) -> Follow<'a> {
        let watched = watched.filter(|_| locator.is_some());
        let mut moments: Vec<(u64, usize)> = moments.iter().copied().zip(0..).collect();
        moments.sort_unstable_by(|a, b| b.cmp(a));
        Follow {
            recording,
            walker: Walker::new(recording, focus),
            locator,
            live_at: vec![Vec::new(); moments.len()],
            moments,
            notes: Notes {
                journal: watched.map(Journal::around),
                ..Notes::default()
            },
            last_ns: 0,
        }
    }

    fn feed(&mut self, record: &Record) {
        let locator = self.locator.as_mut();
        if locator.is_some_and(|locator| locator.feed(self.recording, record)) {
            self.notes.begin(Start {
                ns: record.ns,
                ticket: record.ticket,
            });
        }
        while let Some((_, place)) = self.moments.pop_if(|(ticket, _)| *ticket <= record.ticket) {
            self.look(place);
        }
        self.walker.feed(record, &mut self.notes);
        self.last_ns = record.ns;
    }

    fn look(&mut self, place: usize) {
        if let Some(live) = self.live_at.get_mut(place) {
            *live = in_order(self.walker.live().clone());
        }
    }

    /// After the last event.
    pub fn finish(mut self) -> Followed {
        self.walker.finish(&mut self.notes);
        while let Some((_, place)) = self.moments.pop() {
            self.look(place);
        }
        let mut live = self.walker.live().clone();
        let begun = self.notes.begun;
        if let Some(begun) = begun {
            live.retain(|_, block| block.ticket < begun.ticket);
            let freed = self.notes.freed_since.drain(..);
            live.extend(freed.map(|block| (block.address, block)));
        }
        Followed {
            iterations: self.locator.map(Locator::finish),
            levels: self.notes.levels,
            last_ns: begun.map_or(self.last_ns, |begun| begun.ns),
            live_at_last: in_order(live),
            live_at: self.live_at,
            journal: self.notes.journal,
        }
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
    now: u64,
    levels: Vec<u64>,
    /// Where the iteration began that is under way.
    begun: Option<Start>,
    /// What was live then and has been freed since.
    freed_since: Vec<Block>,
    journal: Option<Journal>,
}

impl Notes {
    fn begin(&mut self, here: Start) {
        self.levels.push(self.now);
        self.begun = Some(here);
        self.freed_since.clear();
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
        self.now = self.now.saturating_add(block.size);
        if let Some(journal) = self.journal.as_mut().filter(|_| block.ticket > 0) {
            journal.note(block.ticket, block.thread, What::Allocated(block.stack));
        }
    }

    fn freed(&mut self, block: &Block, at: &Record) {
        self.now = self.now.saturating_sub(block.size);
        if let Some(journal) = &mut self.journal {
            journal.note(at.ticket, at.event.thread, What::Freed(block.address));
        }
        if self.begun.is_some_and(|begun| block.ticket < begun.ticket) {
            self.freed_since.push(*block);
        }
    }
}

#[cfg(test)]
mod tests;
