//! The mark of a run's iterations, in a form to be shown.

use serde::Serialize;

use super::{By, Certainty, Iterations};
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
    /// Certainty that they are iterations.
    #[serde(flatten)]
    pub certainty: Certainty,
}

impl Recognised {
    /// Describes iterations that were judged.
    pub fn of(iterations: &Iterations, names: &mut dyn Names) -> Recognised {
        Recognised {
            count: iterations.count(),
            by: iterations.by.clone(),
            in_words: iterations.by.in_words(names),
            certainty: iterations.certainty.clone(),
        }
    }

    /// Returns all of it in one line.
    pub fn line(&self) -> String {
        let sure = if self.certainty.sure {
            "sure"
        } else {
            "not sure"
        };
        format!(
            "{} iterations, recognised by {}; {sure}: {}.",
            count(self.count as u64),
            self.in_words,
            self.certainty.why
        )
    }
}
