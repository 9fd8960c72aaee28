//! What the findings of a recording have in common.

use std::fmt;

use serde::Serialize;

use super::table::shown;
use super::units::{bytes, count};
use crate::analysis::{Focus, Held};
use crate::recording::{Names, Recording, Who};
use crate::trace::Layer;

/// What a subcommand found in a recording: printed for people, or serialised for programs.
pub trait Finding: Serialize {
    /// Whether what was asked about is there.
    fn is_found(&self) -> bool;

    /// Writes it for people, so many lines of each list.
    ///
    /// # Errors
    /// Those of the formatter.
    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result;
}

/// A finding with the length of its lists, to be printed.
#[derive(Debug)]
pub struct Shown<'a, T>(pub &'a T, pub usize);

impl<T: Finding> fmt::Display for Shown<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.text(f, self.1)
    }
}

/// What a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// A recording and what is looked at in it.
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
        write!(f, "{}: {}", shown(&self.trace), self.of)?;
        if let Some(device) = self.device {
            write!(f, " of gpu {device}")?;
        }
        writeln!(f)?;
        if self.wrapped {
            writeln!(
                f,
                "The beginning of the run is no longer in the trace: this is of the rest."
            )?;
        }
        Ok(())
    }
}

/// What people call the blocks of a layer.
pub fn layer_name(layer: Layer) -> &'static str {
    match layer {
        Layer::Tensor => "tensors",
        Layer::Device => "device memory",
        Layer::Managed => "managed memory",
        Layer::Host => "pinned host memory",
        Layer::Mapping => "mappings",
    }
}

/// Somebody who holds blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Holder {
    /// Who.
    #[serde(flatten)]
    pub who: Who,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes for each iteration, where that is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_iteration: Option<f64>,
    /// Their part of the whole, 0 to 1.
    pub share: f64,
    /// When the oldest was allocated, ns since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_ns: Option<u64>,
}

impl Holder {
    /// Who holds these blocks, of so many bytes in all.
    pub fn of(names: &mut dyn Names, held: &Held, whole: u64) -> Holder {
        Holder {
            who: Who::of(names, held.stack),
            blocks: held.blocks,
            bytes: held.bytes,
            per_iteration: None,
            share: held.bytes as f64 / whole.max(1) as f64,
            oldest_ns: Some(held.oldest_ns),
        }
    }

    /// Writes the way from the allocation out to `main`, if it is known.
    ///
    /// # Errors
    /// Those of the formatter.
    pub fn way(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.who.frames.is_empty() {
            return Ok(());
        }
        let what = if self.blocks == 1 {
            "1 block".to_string()
        } else {
            format!("{} blocks", count(self.blocks))
        };
        writeln!(
            f,
            "\nAllocated here ({what}, {}), the innermost call first",
            bytes(self.bytes)
        )?;
        for line in self.who.frames.iter().take(WAY) {
            writeln!(f, "  {}", shown(line))?;
        }
        let more = self.who.frames.len().saturating_sub(WAY);
        if more > 0 {
            writeln!(f, "  and {more} more")?;
        }
        Ok(())
    }
}

/// Frames that are shown of a way.
const WAY: usize = 30;

impl Who {
    /// The function, or what to say where there is none.
    pub fn function_or(&self, otherwise: &str) -> String {
        if self.function.is_empty() {
            otherwise.to_string()
        } else {
            self.function.clone()
        }
    }
}
