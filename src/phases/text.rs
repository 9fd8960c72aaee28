//! The use of memory by each phase, as a table.

use std::fmt;

use serde::Serialize;

use super::find::Phase;
use crate::ledger::Focus;
use crate::loops::{Given, Iterations, Recognised};
use crate::output::answer::{Answer, Subject, not_told};
use crate::output::escape::shown;
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, count, span};
use crate::recording::{Names, Recording};

/// Answer of `gpushim phases`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PhasesReport {
    /// The recording and the memory that was examined.
    #[serde(flatten)]
    pub subject: Subject,
    /// Marks by which the iterations were recognised, and their certainty; `None` without iterations.
    pub recognised: Option<Recognised>,
    /// The phases, in the order in which they first began.
    pub phases: Vec<Phase>,
}

impl PhasesReport {
    /// Analyses a recording; `given`, if set, is what the user said iterations begin with.
    pub fn of(
        recording: &dyn Recording,
        focus: Focus,
        given: Option<&Given>,
        names: &mut dyn Names,
    ) -> PhasesReport {
        let iterations = Iterations::find(recording, focus, given);
        let iterations = iterations.as_ref();
        PhasesReport {
            subject: Subject::of(recording, focus),
            recognised: iterations.map(|all| Recognised::of(all, names)),
            phases: Phase::all(recording, focus, iterations),
        }
    }
}

impl Answer for PhasesReport {
    const COMMAND: &'static str = "phases";

    fn is_found(&self) -> bool {
        false
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        self.subject.heading(f)?;
        if self.subject.one_moment && self.phases.is_empty() {
            return writeln!(f, "{}", not_told("What each phase allocates"));
        }
        if let Some(recognised) = self.recognised.as_ref().filter(|by| by.certainty.set) {
            writeln!(f, "{}", shown(&recognised.line()))?;
        }
        if self.phases.is_empty() {
            return writeln!(
                f,
                "No phases: the program announced no ranges (NVTX, record_function), and nothing repeats."
            );
        }
        writeln!(
            f,
            "Means of each time; the peak is the highest of all times."
        )?;
        let mut table = Table::new([
            ("phase", Align::Left),
            ("times", Align::Right),
            ("takes", Align::Right),
            ("allocates", Align::Right),
            ("temporary", Align::Right),
            ("keeps", Align::Right),
            ("frees", Align::Right),
            ("peak above entry", Align::Right),
            ("peak", Align::Right),
        ]);
        for phase in self.phases.iter().take(top) {
            let mean = |sum: u64| sum / phase.count.max(1);
            table.row([
                format!("{:indent$}{}", "", phase.name, indent = 2 * phase.depth),
                count(phase.count),
                span(mean(phase.ns)),
                bytes(mean(phase.allocated)),
                bytes(mean(phase.temporary)),
                bytes(mean(phase.kept)),
                bytes(mean(phase.freed)),
                bytes(phase.peak_above_entry),
                bytes(phase.peak),
            ]);
        }
        write!(f, "\n{table}")?;
        let more = self.phases.len().saturating_sub(top);
        if more > 0 {
            writeln!(f, "and {more} more")?;
        }
        Ok(())
    }
}
