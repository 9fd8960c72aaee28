//! Finds the iterations of a run: by the ranges that the program announced, by what repeats among its allocations, or
//! by the rise and fall of live memory.

use serde::Serialize;

use crate::ledger::Focus;
use crate::output::units::bytes;
use crate::recording::{CallSite, Names, Reader, Recording};
use gpushim_trace::{Kind, Record};

mod beginning;
mod cycles;
mod evidence;
mod follow;
mod given;
mod journal;
mod kept;
mod locate;
mod marker;
mod ranges;
mod recognised;
mod seen;
#[cfg(test)]
mod tests;
mod tokens;

pub use beginning::Given;
use cycles::Swing;
pub use evidence::Certainty;
pub use follow::{Follow, Followed};
pub use journal::{Journal, JournalEntry, What};
pub use kept::{Kept, Steady, in_a_sentence, in_a_table};
pub use locate::Locator;
pub use marker::Marker;
use ranges::Ranges;
pub use recognised::Recognised;
use tokens::{Tokenizer, Tokens};

/// Fewer repetitions are no iterations.
const LEAST: u64 = 4;

/// Fewer sizes that come once in each iteration may be a part of the program of its own.
const FEW: usize = 2;

/// What the iterations were recognised by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// A range that the program announced, its name without numbers, unless the user set it with them.
    Range(String),
    /// The first allocation in each call of a function, which the user set.
    Function(String),
    /// An allocation with this stack id.
    Stack(u32),
    /// Allocations of this size, bytes.
    Size(u64),
    /// Live memory rises and falls by about this many bytes.
    Swing(u64),
}

impl By {
    /// It in words: `the range `step``.
    pub fn in_words(&self, names: &mut dyn Names) -> String {
        match self {
            By::Range(name) => format!("the range `{name}`"),
            By::Function(name) => format!("the calls of `{name}`"),
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Start {
    /// Ns since the start of the recording.
    pub ns: u64,
    /// Its first event.
    pub ticket: u64,
}

/// What repeats in a run, and where it begins each time; last where the last one ends.
#[derive(Clone, Debug)]
struct Repetitions {
    by: By,
    starts: Vec<Start>,
}

/// The iterations of a run, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Iterations {
    /// What they were recognised by.
    pub by: By,
    /// Where each begins, and last where the last one ends: one more than there are iterations.
    pub starts: Vec<Start>,
    /// How sure it is that they are iterations, and not parts of one; of [`Iterations::find`] it says nothing.
    pub certainty: Certainty,
}

/// Candidates for the marker of the iterations of a run, from one pass over its events.
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
            Kind::RangeStart => self.ranges.start(self.recording, &record.event),
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

    /// The marker of the iterations; `None` if nothing repeats often enough.
    pub fn choose(self) -> Option<Locator> {
        if self.recording.is_one_moment() {
            return None;
        }
        let locator = |by| Locator::new(self.focus, by, self.tokens.kinds());
        if let Some(by) = self.ranges.choose() {
            return Some(locator(by));
        }
        let cycles = self.swing.cycles();
        // What memory does as a whole says how many there are at most, and a token of such a count where they begin.
        // A few calls of one function in each layer are no iterations.
        let by = self
            .tokens
            .choose(cycles.as_ref().map(|cycles| cycles.most));
        let whole = cycles.and_then(|cycles| cycles.whole);
        let kinds = self.tokens.kinds();
        match (by, whole) {
            // A size may come once more before the first iteration, or after the last; one alone may be a leak's; and
            // what comes in few of the rises is a part of them.
            (Some((By::Size(_), once)), Some(whole))
                if once.kinds < FEW
                    || whole.count() > once.count * 2
                    || whole.count().abs_diff(once.count) <= 1 + once.count / 20 =>
            {
                Some(Locator::known(self.focus, whole, kinds))
            }
            (Some((by, _)), _) => Some(locator(by)),
            (None, whole) => Some(Locator::known(self.focus, whole?, kinds)),
        }
    }
}

impl Repetitions {
    fn count(&self) -> u64 {
        self.starts.len().saturating_sub(1) as u64
    }
}

impl Reader for Search<'_> {
    fn read(&mut self, records: &[Record]) {
        records.iter().for_each(|record| self.feed(record));
    }
}

impl Iterations {
    /// Looks for iterations, without a look at how sure they are; `None` if nothing repeats often enough.
    pub fn find(recording: &dyn Recording, focus: Focus) -> Option<Iterations> {
        Some(Locator::search(recording, focus)?.locate(recording))
    }

    /// Looks for iterations, and for how sure it is that they are, unless it is given what they begin with.
    pub fn judged(
        recording: &dyn Recording,
        focus: Focus,
        given: Option<&Given>,
    ) -> Option<Iterations> {
        Followed::of(recording, focus, given).iterations
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Whether each is a range that the program announced.
    pub fn are_ranges(&self) -> bool {
        matches!(self.by, By::Range(_))
    }

    /// The option by which the user set them, for a shell: `--iteration 'step #'`; `None` if they were found.
    pub fn option(&self) -> Option<String> {
        let marker = match &self.by {
            _ if !self.certainty.set => return None,
            By::Range(name) | By::Function(name) => name.clone(),
            By::Size(size) => size.to_string(),
            By::Stack(_) | By::Swing(_) => return None,
        };
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._:-".contains(letter);
        Some(if marker.chars().all(is_plain) {
            format!("--iteration {marker}")
        } else {
            format!("--iteration '{}'", marker.replace('\'', r"'\''"))
        })
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
