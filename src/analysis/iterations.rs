//! Finds the iterations of a run: by the ranges that the program announced, by what repeats among its
//! allocations, or by the rise and fall of what is live.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::walk::Focus;
use crate::recording::Recording;
use crate::trace::Kind;

mod cycles;
mod ranges;
#[cfg(test)]
mod tests;
mod tokens;

use cycles::Swing;
use ranges::Ranges;
use tokens::{Tokenizer, Tokens};

/// Fewer repetitions are no iterations.
const LEAST: u64 = 4;

/// What the iterations were recognised by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// A range that the program announced, its name without numbers.
    Range(String),
    /// An allocation with this stack id.
    Stack(u32),
    /// Allocations of this size, bytes.
    Size(u64),
    /// What is live rises and falls by about so many bytes.
    Swing(u64),
}

/// Where an iteration begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Start {
    /// Ns since the start of the recording.
    pub ns: u64,
    /// Its first event.
    pub ticket: u64,
}

/// The iterations of a run, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Iterations {
    /// What they were recognised by.
    pub by: By,
    /// Where each begins, and last where the last one ends: one more than there are iterations.
    pub starts: Vec<Start>,
}

impl Iterations {
    /// Looks for iterations; `None` if nothing repeats often enough.
    pub fn find(recording: &dyn Recording, focus: Focus) -> Option<Iterations> {
        let mut ranges = Ranges::default();
        let (mut tokenizer, mut tokens) = (Tokenizer::new(focus), Tokens::default());
        let mut swing = Swing::new(recording.coverage().readable);
        for record in recording.events() {
            match record.event.kind {
                Kind::RangePush => ranges.push(recording, &record.event),
                Kind::RangePop => ranges.pop(&record.event),
                _ => swing.feed(focus, &record.event),
            }
            if let Some(by) = tokenizer.token(recording, &record.event) {
                tokens.feed(by);
            }
        }
        if let Some(by) = ranges.choose() {
            return Some(locate(recording, focus, by));
        }
        let cycles = swing.cycles(recording, focus);
        // What memory does as a whole says how many there are, and a token of that count where they begin.
        // A few calls of one function in each layer are no iterations.
        match tokens.choose(cycles.as_ref().map(|cycles| cycles.count() as u64)) {
            Some(by) => Some(locate(recording, focus, by)),
            None => cycles,
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Whether each is a range that the program announced.
    pub fn are_ranges(&self) -> bool {
        matches!(self.by, By::Range(_))
    }

    /// The iteration that an event is in; `None` before the first and after the last.
    pub fn of(&self, ticket: u64) -> Option<usize> {
        let after = self.starts.partition_point(|start| start.ticket <= ticket);
        (after > 0 && after < self.starts.len()).then(|| after - 1)
    }
}

/// A name without its numbers: `step 12` and `step 13` are one range.
pub fn without_numbers(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    for letter in name.chars() {
        match (letter.is_ascii_digit(), plain.ends_with('#')) {
            (true, true) => {}
            (true, false) => plain.push('#'),
            (false, _) => plain.push(letter),
        }
    }
    plain
}

/// Where the iterations begin and the last one ends.
fn locate(recording: &dyn Recording, focus: Focus, by: By) -> Iterations {
    let mut starts = Vec::new();
    // Of the thread that began one first: others may announce the same ranges beside it.
    let mut thread = None;
    let mut is_open = false;
    let mut end = None;
    let mut last = Start::default();
    let mut tokenizer = Tokenizer::new(focus);
    let mut names = FxHashMap::default();
    for record in recording.events() {
        let here = Start {
            ns: record.ns,
            ticket: record.ticket,
        };
        let event = &record.event;
        last = here;
        match &by {
            By::Range(wanted) => {
                if event.kind == Kind::RangePush && thread.is_none_or(|one| one == event.thread) {
                    let is_wanted = *names.entry(event.address).or_insert_with(|| {
                        let name = recording.text(event.address).unwrap_or_default();
                        without_numbers(&name) == *wanted
                    });
                    if is_wanted {
                        thread = Some(event.thread);
                        starts.push(here);
                        is_open = true;
                    }
                } else if event.kind == Kind::RangePop && thread == Some(event.thread) && is_open {
                    // The pop after which the range is no longer among those open.
                    let mut open = recording.open_ranges(event.stack).into_iter();
                    is_open = open.any(|name| without_numbers(&name) == *wanted);
                    if !is_open {
                        end = Some(here);
                    }
                }
            }
            by => {
                if tokenizer.token(recording, event).as_ref() == Some(by) {
                    starts.push(here);
                }
            }
        }
    }
    let end = match &by {
        // What comes after the last range is no iteration.
        By::Range(_) => {
            end.filter(|end| starts.last().is_some_and(|start| start.ticket < end.ticket))
        }
        // The last one may have been cut off: it ends where it would have, if the run went on so long.
        _ => None,
    };
    starts.push(end.unwrap_or(Start {
        ns: last.ns,
        ticket: last.ticket.saturating_add(1),
    }));
    Iterations { by, starts }
}
