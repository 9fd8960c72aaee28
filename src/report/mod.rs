//! What a trace has to say, for people and for programs.

pub mod diff;
pub mod drops;
pub mod findings;
pub mod flamegraph;
pub mod fragmentation;
pub mod growth;
pub mod html;
pub mod leaks;
pub mod oom;
pub mod peak;
pub mod phases;
pub mod replay;
pub mod table;
mod text;
pub mod timeline;
pub mod top;
pub mod units;

use std::fmt;

use serde::Serialize;

use crate::analysis::{Summary, summarize};
use crate::recording::Recording;

/// A trace's report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Path of the trace.
    pub trace: String,
    /// What it is, with the version.
    pub format: String,
    /// Wall clock at the start, ns since 1970.
    pub started_wall_ns: u64,
    /// Facts about the process, keys and values in their order; a key may come several times.
    pub facts: Vec<(String, String)>,
    /// Counters of the process, by name.
    pub counters: Vec<(String, u64)>,
    /// Figures from the events.
    pub summary: Summary,
    /// What is damaged or missing in the file.
    pub problems: Vec<String>,
}

impl Report {
    /// Reads all events of a trace and sums them up.
    pub fn of(trace: &dyn Recording) -> Report {
        Report {
            trace: trace.path().display().to_string(),
            format: trace.format(),
            started_wall_ns: trace.wall_ns(),
            facts: trace.facts(),
            counters: trace.counters(),
            summary: summarize(trace),
            problems: trace.problems(),
        }
    }

    /// The first fact of a key.
    pub fn fact(&self, key: &str) -> Option<&str> {
        self.facts
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// All facts of a key.
    pub fn facts_of<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.facts
            .iter()
            .filter(move |(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::render(self)?)
    }
}
