//! The mark of a run's iterations, in a form to be shown.

use serde::Serialize;

use super::{By, Iterations};
use gpushim_recording::Names;
use gpushim_recording::units::count;

/// What the iterations were recognised by, and how sure they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Recognised {
    /// How many there are.
    pub count: usize,
    /// What they were recognised by.
    pub by: By,
    /// The same in words: `the range `step``.
    pub in_words: String,
    /// Whether a finding may rest on them.
    pub sure: bool,
    /// Why, or why not.
    pub why: String,
    /// Whether the user set what they begin with.
    pub set: bool,
}

impl Recognised {
    /// Describes iterations that were judged.
    pub fn of(iterations: &Iterations, names: &mut dyn Names) -> Recognised {
        Recognised {
            count: iterations.count(),
            by: iterations.by.clone(),
            in_words: iterations.by.in_words(names),
            sure: iterations.certainty.sure,
            why: iterations.certainty.why.clone(),
            set: iterations.certainty.set,
        }
    }

    /// Returns all of it in one line.
    pub fn line(&self) -> String {
        let sure = if self.sure { "sure" } else { "not sure" };
        format!(
            "{} iterations, recognised by {}; {sure}: {}.",
            count(self.count as u64),
            self.in_words,
            self.why
        )
    }
}
