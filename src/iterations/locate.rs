//! The beginnings of the iterations of a run, by the marker that was chosen.

use rustc_hash::FxHashMap;

use super::evidence::Evidence;
use super::kept::Kept;
use super::tokens::Tokenizer;
use super::{By, Iterations, Repetitions, Search, Start, without_numbers};
use crate::ledger::Focus;
use crate::recording::Recording;
use gpushim_trace::{Kind, Record};

/// The most iterations; the last one includes all later events.
pub(super) const MOST: usize = 1 << 20;

/// Goes through the events and finds the beginnings.
#[derive(Debug)]
pub struct Locator {
    by: By,
    starts: Vec<Start>,
    /// Of iterations that are known already: how many have begun.
    known: Option<usize>,
    /// Of the thread that began one first: others may announce the same ranges beside it.
    thread: Option<u32>,
    is_open: bool,
    end: Option<Start>,
    last: Start,
    tokenizer: Tokenizer,
    names: FxHashMap<u64, bool>,
    /// Of how sure it is, where that is asked.
    evidence: Option<Evidence>,
}

impl Locator {
    /// Of iterations that are recognised by `by`. `kinds`: how many kinds of allocations come often in the run.
    pub(super) fn new(focus: Focus, by: By, kinds: usize) -> Locator {
        Locator {
            by,
            starts: Vec::new(),
            known: None,
            thread: None,
            is_open: false,
            end: None,
            last: Start::default(),
            tokenizer: Tokenizer::new(focus),
            names: FxHashMap::default(),
            evidence: Some(Evidence::new(focus, kinds)),
        }
    }

    /// Of iterations whose beginnings are known.
    pub(super) fn known(focus: Focus, known: Repetitions, kinds: usize) -> Locator {
        Locator {
            starts: known.starts,
            known: Some(0),
            ..Locator::new(focus, known.by, kinds)
        }
    }

    /// Of the marker that is found in a recording.
    pub(super) fn search(recording: &dyn Recording, focus: Focus) -> Option<Locator> {
        let mut search = Search::new(recording, focus);
        recording.events().for_each(|record| search.feed(&record));
        search.choose()
    }

    /// Goes through the events of a recording, unless the beginnings are known, without a look at how sure they are.
    pub(super) fn locate(self, recording: &dyn Recording) -> Iterations {
        let mut locator = Locator {
            evidence: None,
            ..self
        };
        if locator.known.is_none() {
            for record in recording.events() {
                locator.feed(recording, &record);
            }
        }
        locator.finish(recording, &Kept::default())
    }

    /// The next event; says whether an iteration begins with it.
    pub fn feed(&mut self, recording: &dyn Recording, record: &Record) -> bool {
        let begins = self.begins(recording, record);
        if let Some(evidence) = &mut self.evidence {
            if begins {
                evidence.begin();
            }
            evidence.feed(record, |stack| recording.frames(stack));
        }
        begins
    }

    fn begins(&mut self, recording: &dyn Recording, record: &Record) -> bool {
        if let Some(begun) = &mut self.known {
            let before = *begun;
            // The last one is the end.
            let all = self.starts.len().saturating_sub(1);
            while *begun < all
                && let Some(start) = self.starts.get(*begun)
                && start.ticket <= record.ticket
            {
                *begun += 1;
            }
            return *begun > before;
        }
        let here = Start {
            ns: record.ns,
            ticket: record.ticket,
        };
        self.last = here;
        let event = &record.event;
        let begins = match &self.by {
            By::Range(wanted) => match event.kind {
                Kind::RangePush if self.thread.is_none_or(|one| one == event.thread) => {
                    let is_wanted = *self.names.entry(event.address).or_insert_with(|| {
                        let name = recording.text(event.address).unwrap_or_default();
                        without_numbers(&name) == *wanted
                    });
                    if is_wanted {
                        (self.thread, self.is_open) = (Some(event.thread), true);
                    }
                    is_wanted
                }
                Kind::RangePop if self.thread == Some(event.thread) && self.is_open => {
                    // The pop after which the range is no longer among those open.
                    let mut open = recording.open_ranges(event.stack).into_iter();
                    self.is_open = open.any(|name| without_numbers(&name) == *wanted);
                    if !self.is_open {
                        self.end = Some(here);
                    }
                    false
                }
                _ => false,
            },
            by => self.tokenizer.token(recording, event).as_ref() == Some(by),
        };
        let begins = begins && self.starts.len() < MOST;
        if begins {
            self.starts.push(here);
        }
        begins
    }

    /// The iterations, after the last event, and given what they kept.
    pub fn finish(self, recording: &dyn Recording, kept: &Kept) -> Iterations {
        let (by, mut starts) = (self.by, self.starts);
        if self.known.is_none() {
            let end = match &by {
                // What comes after the last range is no iteration.
                By::Range(_) => self
                    .end
                    .filter(|end| starts.last().is_some_and(|start| start.ticket < end.ticket)),
                // The last one may have been cut off: it ends where it would have, if the run went on so long.
                _ => None,
            };
            starts.push(end.unwrap_or(Start {
                ns: self.last.ns,
                ticket: self.last.ticket.saturating_add(1),
            }));
        }
        let judge = |evidence: Evidence| evidence.judge(&by, kept, &mut *recording.names());
        let certainty = self.evidence.map(judge).unwrap_or_default();
        Iterations {
            by,
            starts,
            certainty,
        }
    }
}
