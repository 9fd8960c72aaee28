//! The beginnings of the iterations of a run, by a range, an allocation or a size.

use crate::repeats::{Loop, Moment};
use rustc_hash::{FxHashMap, FxHashSet};

use super::beginning::{Beginning, begun_by, is_allocation};
use super::tokens::Tokenizer;
use crate::ledger::Focus;
use gpushim_recording::Recording;
use gpushim_trace::{Event, Kind, Record};

/// Highest number of iterations; the last one includes all later events.
const MOST: usize = 1 << 20;

/// Goes through the events and finds the beginnings.
#[derive(Debug)]
pub(super) struct Locator {
    beginning: Beginning,
    focus: Focus,
    starts: Vec<Moment>,
    /// The thread and device of the first range.
    first: Option<(u32, u8)>,
    is_open: bool,
    /// The numbers of the ranges that may end on another thread.
    started: FxHashSet<u64>,
    end: Option<Moment>,
    last: Moment,
    last_allocation: u64,
    tokenizer: Tokenizer,
    names: FxHashMap<u64, bool>,
}

impl Locator {
    /// Looks for this beginning among the allocations of a focus.
    pub(super) fn new(beginning: Beginning, focus: Focus) -> Locator {
        Locator {
            beginning,
            focus,
            starts: Vec::new(),
            first: None,
            is_open: false,
            started: FxHashSet::default(),
            end: None,
            last: Moment::default(),
            last_allocation: 0,
            tokenizer: Tokenizer::new(focus),
            names: FxHashMap::default(),
        }
    }

    /// Goes through the events of a recording. Returns the passes, the last allocation, and the end
    /// of the last pass.
    pub(super) fn locate(mut self, recording: &dyn Recording) -> (Loop, u64, Moment) {
        for record in recording.events() {
            self.last = Moment::of(&record);
            if is_allocation(&record.event) {
                self.last_allocation = record.ticket;
            }
            if self.is_beginning(recording, &record) && self.starts.len() < MOST {
                self.starts.push(self.last);
            }
        }
        // Events after the last range are no iteration; iterations by allocation may go on to the
        // end.
        let ends = self
            .end
            .filter(|end| self.starts.last().is_some_and(|start| start < end));
        let end = ends.unwrap_or(Moment {
            ns: self.last.ns,
            ticket: self.last.ticket.saturating_add(1),
        });
        let first = self.starts.first().map_or(end.ticket, |first| first.ticket);
        let passes = Loop {
            path: 0,
            depth: 0,
            above: 0,
            is_other: false,
            end: Some(end),
            stride: 1,
            count: self.starts.len() as u64,
            entries: 1,
            covered: end.ticket.saturating_sub(first),
            starts: self.starts,
        };
        (passes, self.last_allocation, end)
    }

    fn is_beginning(&mut self, recording: &dyn Recording, record: &Record) -> bool {
        let event: &Event = &record.event;
        let here = self.last;
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
                // The pop after which the range is no longer open.
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
}
