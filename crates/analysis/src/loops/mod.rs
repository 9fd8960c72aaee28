//! The loops of a run: read from the stacks of its events, from announced ranges, or, without
//! either, from repeated sizes.
//!
//! [`Search`] finds them in a first pass over the events; [`Follow`] follows blocks through them in
//! a second.

use serde::Serialize;

use crate::ledger::Focus;
use gpushim_recording::{CallSite, Names, Recording};

mod beginning;
mod certainty;
mod follow;
mod found;
mod given;
mod journal;
mod locate;
mod marker;
mod place;
mod ranges;
mod recognised;
mod search;
mod seen;
mod span;
#[cfg(test)]
mod tests;
mod tokens;

/// Beginning of an iteration.
pub use crate::repeats::Moment as Start;
pub use beginning::Given;
pub use certainty::{Certainty, Judgement, Told};
pub use follow::{Follow, Followed};
pub use found::Found;
pub use journal::{Journal, JournalEntry, What};
pub use marker::Marker;
pub use recognised::Recognised;
pub use search::Search;

/// Fewest repetitions that are iterations.
const LEAST: u64 = 3;

/// The mark by which iterations are recognised.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// A loop in the program's code.
    Loop {
        /// Id of a stack through it.
        stack: u32,
        /// Number of calls on that stack to the looping function, itself included.
        depth: u32,
        /// True if a function that called it may loop instead.
        is_around: bool,
    },
}

impl By {
    /// Returns it in words: `the range `step``.
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
            By::Loop {
                stack,
                depth,
                is_around,
            } => match place::function(names, *stack, *depth as usize) {
                Some(function) if *is_around => {
                    format!("the loop around `{}`", function.in_a_sentence())
                }
                Some(function) => format!("the loop in `{}`", function.in_a_sentence()),
                None => "threads that do the same".to_string(),
            },
        }
    }
}

/// The iterations of a run, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Iterations {
    /// The mark by which they are recognised.
    pub by: By,
    /// Beginnings of all, then the end of the last: one more than iterations.
    pub starts: Vec<Start>,
    /// The certainty that they are iterations, and not parts of one.
    pub certainty: Certainty,
}

impl Iterations {
    /// Looks for iterations and judges their certainty, unless their beginning is given. Returns
    /// `None` if nothing repeats often enough.
    pub fn find(
        recording: &dyn Recording,
        focus: Focus,
        given: Option<&Given>,
    ) -> Option<Iterations> {
        Found::of(recording, focus, given).iterations()
    }

    /// Returns the number of iterations.
    pub fn count(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Returns true if each is an announced range.
    pub fn are_ranges(&self) -> bool {
        matches!(self.by, By::Range(_))
    }

    /// Returns the option by which the user set them, for a shell: `--iteration 'step #'`. Returns
    /// `None` if they were found.
    pub fn option(&self) -> Option<String> {
        let marker = match &self.by {
            _ if !self.certainty.set => return None,
            By::Range(name) | By::Function(name) => name.clone(),
            By::Size(size) => size.to_string(),
            By::Stack(_) | By::Loop { .. } => return None,
        };
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._:-".contains(letter);
        Some(if marker.chars().all(is_plain) {
            format!("--iteration {marker}")
        } else {
            format!("--iteration '{}'", marker.replace('\'', r"'\''"))
        })
    }

    /// Returns the iteration that an event is in; `None` before the first and after the last.
    pub fn of(&self, ticket: u64) -> Option<usize> {
        let after = self.starts.partition_point(|start| start.ticket <= ticket);
        (after > 0 && after < self.starts.len()).then(|| after - 1)
    }
}

/// Returns a name without its numbers: `step 12` and `step 13` are one range.
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
