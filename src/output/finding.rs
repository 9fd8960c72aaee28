//! What the findings of a recording have in common.

use std::fmt;

use serde::Serialize;

use super::escape::shown;
use super::units::{bytes, count};
use crate::cut;
use crate::ledger::{Focus, Held};
use crate::recording::{CallSite, Names, Recording};
use gpushim_trace::Layer;

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
    pub who: CallSite,
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
            who: CallSite::of(names, held.stack),
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
        let frames = &self.who.frames;
        // A framework may take dozens of calls from the function responsible to the allocation.
        let place = frames.iter().position(|line| *line == self.who.function);
        let skipped = place.map_or(0, |place| place.saturating_sub(INNER + OUTER));
        for (number, line) in frames.iter().enumerate().take(WAY + skipped) {
            if skipped > 0 && number == INNER {
                writeln!(f, "  … {skipped} calls within libraries")?;
            }
            if !(INNER..INNER + skipped).contains(&number) {
                writeln!(f, "  {}", shown(&shortened(line)))?;
            }
        }
        let more = frames.len().saturating_sub(WAY + skipped);
        if more > 0 {
            writeln!(f, "  and {more} more")?;
        }
        Ok(())
    }
}

/// Frames that are shown of a way.
const WAY: usize = 30;
/// Of those before the function responsible, how many are shown at the allocation, and how many next to it.
const INNER: usize = 3;
const OUTER: usize = 2;
/// Letters of a frame.
const LETTERS: usize = 120;

/// A frame in one line of a terminal: names with templates have hundreds of letters, and their place comes last.
fn shortened(line: &str) -> String {
    let (function, place) = line.rsplit_once("  ").unwrap_or((line, ""));
    match cut::to_letters(function, LETTERS) {
        Some(function) => format!("{function}…  {place}"),
        None => line.to_string(),
    }
}

impl CallSite {
    /// The function, or what to say where there is none.
    pub fn function_or(&self, otherwise: &str) -> String {
        if self.function.is_empty() {
            otherwise.to_string()
        } else {
            self.function.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Way(Holder);

    impl fmt::Display for Way {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.way(f)
        }
    }

    fn way(library: usize, user: usize) -> Vec<String> {
        let frame = |name: &str, number: usize| format!("{name}{number}  {name}.py");
        let frames = (0..library).map(|number| frame("library", number));
        let frames = frames.chain((0..user).map(|number| frame("mine", number)));
        let who = CallSite {
            function: "mine0  mine.py".to_string(),
            frames: frames.collect(),
            ranges: Vec::new(),
        };
        let holder = Holder {
            who,
            blocks: 1,
            bytes: 2048,
            per_iteration: None,
            share: 1.0,
            oldest_ns: None,
        };
        let text = Way(holder).to_string();
        text.lines().skip(2).map(str::to_string).collect()
    }

    #[test]
    fn the_way_from_an_allocation_to_main() {
        assert_eq!(
            way(1, 2),
            [
                "  library0  library.py",
                "  mine0  mine.py",
                "  mine1  mine.py"
            ]
        );
        // Five calls of libraries are shown, more are counted.
        assert_eq!(way(5, 1).len(), 6);
        let long = way(20, 2);
        assert_eq!(
            long,
            [
                "  library0  library.py",
                "  library1  library.py",
                "  library2  library.py",
                "  … 15 calls within libraries",
                "  library18  library.py",
                "  library19  library.py",
                "  mine0  mine.py",
                "  mine1  mine.py",
            ]
        );
        let deep = way(20, 40);
        assert_eq!(deep.len(), 32);
        assert_eq!(deep[31], "  and 15 more");
    }

    #[test]
    fn names_with_templates() {
        let long = format!("{}  libtorch.so", "x".repeat(500));
        assert_eq!(shortened(&long).chars().count(), LETTERS + 1 + 2 + 11);
        assert!(shortened(&long).ends_with("…  libtorch.so"));
        assert_eq!(shortened("main  train.py:3"), "main  train.py:3");
    }
}
