//! Result of a subcommand, printed as text or serialised.

use std::fmt;

use serde::Serialize;

use super::escape::shown;
use super::style::{Style, marked};
use super::units::{bytes, count};
use crate::ledger::Focus;
use crate::recording::Recording;
use gpushim_trace::Layer;

/// Result of a subcommand for one recording, printed as text or serialised.
pub trait Answer: Serialize {
    /// The name of the subcommand.
    const COMMAND: &'static str;

    /// True if something was found, for the exit code.
    fn is_found(&self) -> bool;

    /// Writes it as text, at most `top` lines of each list.
    ///
    /// # Errors
    /// Those of the formatter.
    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result;
}

/// An answer with the length of its lists, to be printed.
#[derive(Debug)]
pub struct Shown<'a, T>(pub &'a T, pub usize);

impl<T: Answer> fmt::Display for Shown<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.text(f, self.1)
    }
}

/// Reason for which a snapshot without a history cannot show changes over time.
pub const ONE_MOMENT: &str = "this snapshot holds one moment and has no history";

/// Advice for a snapshot that has no history.
pub const RECORD_HISTORY: &str = "torch.cuda.memory._record_memory_history(), called before the part to be examined, records a history";

/// Sentence that a snapshot without a history cannot answer a question: `Whether memory grows`.
pub fn not_told(what: &str) -> String {
    format!("{what} cannot be told: {ONE_MOMENT}. {RECORD_HISTORY}.")
}

/// Reason for which a damaged recording cannot show the absence of an event.
pub const DAMAGED: &str = "a part of the recording cannot be read";

/// Reason for which a recording cannot show the absence of an event. `None` if the recording is
/// complete.
pub fn unread(recording: &dyn Recording) -> Option<&'static str> {
    let coverage = recording.coverage();
    if recording.is_one_moment() {
        Some(ONE_MOMENT)
    } else if coverage.wrapped {
        Some("the beginning of the run is no longer in the recording")
    } else if coverage.lost + coverage.torn > 0 || !recording.problems().is_empty() {
        Some(DAMAGED)
    } else {
        None
    }
}

/// Sentence that the peak of the run, in bytes, was higher than the peak of the remaining events.
pub fn lost_peak_in_words(most: u64) -> String {
    format!(
        "That is the peak of what is left: {} were live at the peak of the run, of which no events are left.",
        bytes(most)
    )
}

/// The subject of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Subject {
    /// Path of the recording.
    pub trace: String,
    /// `tensors` or `memory`.
    pub of: &'static str,
    /// Of one device only.
    pub device: Option<u8>,
    /// True if the beginning of the run is missing.
    pub wrapped: bool,
    /// True for a snapshot without a history, which holds one moment.
    pub one_moment: bool,
}

impl Subject {
    /// A recording and the memory that is examined in it.
    pub fn of(recording: &dyn Recording, focus: Focus) -> Subject {
        Subject {
            trace: recording.path().display().to_string(),
            of: layer_name(focus.layer),
            device: focus.device,
            wrapped: recording.coverage().wrapped,
            one_moment: recording.is_one_moment(),
        }
    }

    /// Writes it as the first line.
    ///
    /// # Errors
    /// Those of the formatter.
    pub fn heading(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.device.map(|device| format!(" of gpu {device}"));
        let text = format!(
            "{}: {}{}",
            shown(&self.trace),
            self.of,
            device.unwrap_or_default()
        );
        writeln!(f, "{}", marked(Style::Heading, &text))?;
        if self.wrapped {
            writeln!(
                f,
                "The beginning of the run is no longer in the trace: this is of the rest."
            )?;
        }
        Ok(())
    }
}

/// The name of a layer in text.
pub fn layer_name(layer: Layer) -> &'static str {
    match layer {
        Layer::Tensor => "tensors",
        Layer::Device => "device memory",
        Layer::Managed => "managed memory",
        Layer::Host => "pinned host memory",
        Layer::Mapping => "mappings",
    }
}

/// Formats a number of things; their name gets an `s` unless there is one.
pub fn plural(number: u64, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {what}{s}", count(number))
}
