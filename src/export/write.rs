//! The formats that are one file, and the choice among them.

use std::io::Write;

use anyhow::{Result, anyhow};

use crate::recording::Recording;

#[cfg(test)]
mod tests;

use super::profile::Measure;
use super::{firefox, folded, json, memory_viz, perfetto, pprof, rmm, speedscope};

/// A format that is one file; Parquet, which is a folder, is [`parquet`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// PyTorch's memory snapshot, for its `_memory_viz.py` and its viewer.
    MemoryViz,
    /// Perfetto's trace: counters, ranges, moments.
    Perfetto,
    /// The Firefox Profiler's processed profile: counters, allocations with stacks.
    Firefox,
    /// Speedscope's profile, one for each measure.
    Speedscope,
    /// A gzipped profile for pprof, with all measures.
    Pprof,
    /// A line for each stack and its bytes, for flame graphs.
    Folded,
    /// The log of RMM's `logging_resource_adaptor`.
    Rmm,
    /// An object a line: the process, stacks, events.
    Json,
}

/// Writes recordings in a format. `measure` is what [`Format::Folded`] counts.
///
/// # Errors
/// The format cannot hold what is given, or writing fails; completes "failed to …".
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
        Format::Speedscope => speedscope::write(recordings, out),
        Format::Pprof => pprof::write(recordings, out),
        Format::Folded => folded::write(recordings, measure, out),
        Format::Json => json::write(recordings, out),
        Format::Rmm => match recordings {
            [one] => rmm::write(&**one, out),
            _ => Err(anyhow!(
                "write a log of RMM for {} files: it is of one process; name one file",
                recordings.len()
            )),
        },
    }
}
