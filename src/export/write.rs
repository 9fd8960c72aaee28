//! The formats, and the choice among the formats of one file.

use std::io::Write;

use clap::ValueEnum;

use crate::error::{Result, failed};
use crate::recording::Recording;

#[cfg(test)]
mod tests;

use super::profile::Measure;
use super::{firefox, folded, json, memory_viz, perfetto, pprof, rmm};

/// A format of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// PyTorch's memory snapshot, for its viewer and `_memory_viz.py`.
    MemoryViz,
    /// Perfetto: counters, ranges and moments over time.
    Perfetto,
    /// Firefox Profiler: allocations and what is retained, by function.
    Firefox,
    /// pprof: peak, live and allocated bytes by stack, gzipped protobuf; speedscope opens it, too.
    Pprof,
    /// A line for each stack and its bytes, for flame graphs.
    Folded,
    /// RMM's log, CSV.
    Rmm,
    /// Events as JSON, one a line, and their stacks.
    Json,
}

/// Writes recordings in a format. `measure` selects the sum that [`Format::Folded`] counts.
///
/// # Errors
/// The format cannot hold the recordings, or writing fails; completes "failed to …".
pub fn write(
    format: Format,
    recordings: &[Box<dyn Recording>],
    measure: Measure,
    out: &mut dyn Write,
) -> Result<()> {
    match format {
        Format::MemoryViz => memory_viz::write(recordings, out),
        Format::Perfetto => perfetto::write(recordings, out),
        Format::Firefox => firefox::write(recordings, out),
        Format::Pprof => pprof::write(recordings, out),
        Format::Folded => folded::write(recordings, measure, out),
        Format::Json => json::write(recordings, out),
        Format::Rmm => match recordings {
            [one] => rmm::write(&**one, out),
            _ => Err(failed!(
                "write an RMM log of {} files: such a log is of one process; name one file",
                recordings.len()
            )),
        },
    }
}
