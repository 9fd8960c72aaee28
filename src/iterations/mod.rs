//! Finds the iterations of a run: by the ranges that the program announced, by what repeats among its
//! allocations, or by the rise and fall of what is live.

use serde::Serialize;

use crate::ledger::Focus;
use crate::output::units::bytes;
use crate::recording::{CallSite, Names, Reader, Recording};
use gpushim_trace::{Kind, Record};

mod cycles;
mod follow;
mod journal;
mod locate;
mod ranges;
#[cfg(test)]
mod tests;
mod tokens;

use cycles::Swing;
pub use follow::{Follow, Followed};
pub use journal::{Entry, Journal, What};
pub use locate::Locator;
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

impl By {
    /// It in words: `the range `step``.
    pub fn in_words(&self, names: &mut dyn Names) -> String {
        match self {
            By::Range(name) => format!("the range `{name}`"),
            By::Stack(stack) => {
                format!(
                    "allocations by {}",
                    CallSite::of(names, *stack).in_a_sentence()
                )
            }
            By::Size(size) => format!("allocations of {size} bytes"),
            By::Swing(swing) => format!("the rise and fall of {}", bytes(*swing)),
        }
    }
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

/// What might tell the iterations of a run, gathered in one pass over its events.
pub struct Search<'a> {
    recording: &'a dyn Recording,
    focus: Focus,
    ranges: Ranges,
    tokenizer: Tokenizer,
    tokens: Tokens,
    swing: Swing,
}

impl<'a> Search<'a> {
    /// Among the allocations of a focus, and the ranges.
    pub fn new(recording: &'a dyn Recording, focus: Focus) -> Search<'a> {
        Search {
            recording,
            focus,
            ranges: Ranges::default(),
            tokenizer: Tokenizer::new(focus),
            tokens: Tokens::default(),
            swing: Swing::new(recording.coverage().readable),
        }
    }

    /// The next event.
    pub fn feed(&mut self, record: &Record) {
        match record.event.kind {
            Kind::RangePush => self.ranges.push(self.recording, &record.event),
            Kind::RangePop => self.ranges.pop(&record.event),
            _ => {}
        }
        if self.ranges.repeat() {
            // They will be chosen, whatever else repeats.
            return;
        }
        self.swing.feed(self.focus, record);
        if let Some(by) = self.tokenizer.token(self.recording, &record.event) {
            self.tokens.feed(by);
        }
    }

    /// What tells the iterations; `None` if nothing repeats often enough.
    pub fn choose(self) -> Option<Locator> {
        let locator = |by| Locator::new(self.focus, by);
        if let Some(by) = self.ranges.choose() {
            return Some(locator(by));
        }
        let cycles = self.swing.cycles();
        // What memory does as a whole says how many there are, and a token of that count where they begin.
        // A few calls of one function in each layer are no iterations.
        match self
            .tokens
            .choose(cycles.as_ref().map(|cycles| cycles.count() as u64))
        {
            Some(by) => Some(locator(by)),
            None => cycles.map(|cycles| Locator::known(self.focus, cycles)),
        }
    }
}

impl Reader for Search<'_> {
    fn read(&mut self, records: &[Record]) {
        records.iter().for_each(|record| self.feed(record));
    }
}

impl Iterations {
    /// Looks for iterations; `None` if nothing repeats often enough.
    pub fn find(recording: &dyn Recording, focus: Focus) -> Option<Iterations> {
        let mut search = Search::new(recording, focus);
        recording.events().for_each(|record| search.feed(&record));
        let mut locator = search.choose()?;
        if !locator.is_done() {
            for record in recording.events() {
                locator.feed(recording, &record);
            }
        }
        Some(locator.finish())
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
