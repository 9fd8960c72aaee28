//! The beginnings of the iterations of a run, by the marker that was chosen.

use rustc_hash::{FxHashMap, FxHashSet};

use super::beginning::{Beginning, Given, begun_by, is_allocation};
use super::evidence::{Certainty, Evidence};
use super::kept::Kept;
use super::marker::RangeName;
use super::tokens::Tokenizer;
use super::{By, Iterations, Repetitions, Search, Start};
use crate::ledger::Focus;
use crate::recording::Recording;
use gpushim_trace::{Kind, Record};

/// The most iterations; the last one includes all later events.
pub(super) const MOST: usize = 1 << 20;

/// Goes through the events and finds the beginnings.
#[derive(Debug)]
pub struct Locator {
    by: By,
    beginning: Beginning,
    focus: Focus,
    /// Whether the user set it.
    is_set: bool,
    starts: Vec<Start>,
    /// Of iterations that are known already: how many have begun.
    known: Option<usize>,
    /// What began a range first.
    first: Option<(u32, u8)>,
    is_open: bool,
    /// The numbers of the ranges that may end on another thread.
    started: FxHashSet<u64>,
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
        let beginning = match &by {
            By::Range(name) => Beginning::Range(RangeName::without_numbers(name.clone())),
            by => Beginning::Allocation(by.clone()),
        };
        Locator {
            by,
            beginning,
            focus,
            is_set: false,
            starts: Vec::new(),
            known: None,
            first: None,
            is_open: false,
            started: FxHashSet::default(),
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

    /// Of what the user set.
    pub fn given(given: &Given) -> Locator {
        let locator = Locator::new(given.focus, given.by.clone(), 0);
        Locator {
            beginning: given.beginning.clone(),
            is_set: true,
            evidence: locator.evidence.filter(|_| !given.is_certain),
            ..locator
        }
    }

    /// Whether the user set what begins an iteration.
    pub(super) fn is_set(&self) -> bool {
        self.is_set
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
        let begins = self.is_beginning(recording, record, here);
        let begins = begins && self.starts.len() < MOST;
        if begins {
            self.starts.push(here);
        }
        begins
    }

    fn is_beginning(&mut self, recording: &dyn Recording, record: &Record, here: Start) -> bool {
        let event = &record.event;
        let wanted = match &self.beginning {
            Beginning::Range(wanted) => wanted,
            Beginning::Allocation(by) => {
                return self.tokenizer.token(recording, event).as_ref() == Some(by);
            }
            Beginning::Size(bytes) => {
                return event.size == *bytes && is_allocation(event) && self.focus.holds(event);
            }
        };
        let is_first = |first: Option<(u32, u8)>| first.is_none_or(|one| one == begun_by(event));
        match event.kind {
            Kind::RangePush | Kind::RangeStart if is_first(self.first) => {
                let is_wanted = *self.names.entry(event.address).or_insert_with(|| {
                    let name = recording.text(event.address).unwrap_or_default();
                    wanted.is(&name)
                });
                if is_wanted {
                    self.first = Some(begun_by(event));
                }
                if is_wanted && event.kind == Kind::RangeStart {
                    self.started.insert(event.size);
                } else if is_wanted {
                    self.is_open = true;
                }
                is_wanted
            }
            Kind::RangePop
                if self.is_open && self.first.is_some_and(|(one, _)| one == event.thread) =>
            {
                // The pop after which the range is no longer among those open.
                let mut open = recording.open_ranges(event.stack).into_iter();
                self.is_open = open.any(|name| wanted.is(&name));
                if !self.is_open {
                    self.end = Some(here);
                }
                false
            }
            Kind::RangeEnd if self.started.remove(&event.size) => {
                if self.started.is_empty() {
                    self.end = Some(here);
                }
                false
            }
            _ => false,
        }
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
        let certainty = match self.evidence {
            None if self.is_set => Certainty::set(),
            Some(evidence) if self.is_set => Certainty::of_set(judge(evidence)),
            Some(evidence) => judge(evidence),
            None => Certainty::default(),
        };
        Iterations {
            by,
            starts,
            certainty,
        }
    }
}
