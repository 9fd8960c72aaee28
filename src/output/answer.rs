//! What a subcommand answers, printed as text or serialised.

use std::fmt;

use serde::Serialize;

use super::escape::shown;
use super::style::{Style, marked};
use crate::ledger::Focus;
use crate::recording::Recording;
use gpushim_trace::Layer;

/// What a subcommand answers of a recording, printed as text or serialised.
pub trait Answer: Serialize {
    /// The name of the subcommand.
    const COMMAND: &'static str;

    /// Whether something was found, for the exit code.
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
    /// Whether the beginning of the run is missing.
    pub wrapped: bool,
}

impl Subject {
    /// A recording and the memory that is examined in it.
    pub fn of(recording: &dyn Recording, focus: Focus) -> Subject {
        Subject {
            trace: recording.path().display().to_string(),
            of: layer_name(focus.layer),
            device: focus.device,
            wrapped: recording.coverage().wrapped,
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
