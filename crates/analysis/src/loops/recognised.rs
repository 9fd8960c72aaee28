//! The mark of a run's iterations, in a form to be shown.

use serde::Serialize;

use super::{By, Iterations};
use gpushim_recording::Names;
use gpushim_recording::units::count;

/// Marks by which the iterations were recognised, and their certainty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Recognised {
    /// How many there are.
    pub count: usize,
    /// Mark by which they were recognised.
    pub by: By,
    /// Mark in words: `the range `step``.
    pub in_words: String,
    /// True if a finding may rest on them.
    pub sure: bool,
    /// Why, or why not.
    pub why: String,
    /// True if the user set their beginning.
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
