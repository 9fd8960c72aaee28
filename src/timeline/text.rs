//! Memory over time, in characters and figures.

use std::fmt;

use serde::Serialize;

use super::find::{Curve, Curves, Run};
use super::plot::{legend, plot};
use crate::ledger::Focus;
use crate::output::answer::{Answer, not_told};
use crate::output::escape::shown;
use crate::output::table::{Align, Table};
use crate::output::units::{bytes, span};
use crate::recording::Recording;

/// The output of `gpushim timeline`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TimelineReport {
    /// Path of the recording.
    pub trace: String,
    /// True for a snapshot without a history, which holds one moment.
    pub one_moment: bool,
    /// The curves.
    #[serde(flatten)]
    pub run: Run,
}

impl TimelineReport {
    /// A recording in `columns` columns.
    pub fn of(recording: &dyn Recording, focus: Focus, columns: usize) -> TimelineReport {
        TimelineReport {
            trace: recording.path().display().to_string(),
            one_moment: recording.is_one_moment(),
            run: Run::of(recording, focus.device, columns),
        }
    }
}

/// Curves that are drawn for a device: the memory handed out, and the memory held for it.
///
/// The framework's own figures are used if it gives them.
fn drawn(device: &Curves) -> Option<(&Curve, Option<&Curve>)> {
    let of = |name: &str| device.curves.iter().find(|curve| curve.name == name);
    match of("tensors") {
        Some(tensors) => Some((tensors, of("reserved by the framework").or(of("reserved")))),
        None => of("allocated")
            .or(of("requested"))
            .map(|handed_out| (handed_out, of("reserved")))
            .or(device.curves.first().map(|first| (first, None))),
    }
}

fn title(device: &Curves) -> String {
    match device.device {
        Some(ordinal) => format!("gpu {ordinal}"),
        None => "no known gpu".to_string(),
    }
}

impl Answer for TimelineReport {
    const COMMAND: &'static str = "timeline";

    fn is_found(&self) -> bool {
        false
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, _: usize) -> fmt::Result {
        writeln!(f, "{}", shown(&self.trace))?;
        if !self.run.is_complete {
            writeln!(
                f,
                "The timeline has gaps: events were missed, or the file is cut off."
            )?;
        }
        if self.run.devices.iter().all(|one| one.curves.is_empty()) {
            return writeln!(f, "The recording has no events of memory.");
        }
        if self.one_moment {
            writeln!(f, "{}", not_told("How memory went"))?;
        }
        for device in &self.run.devices {
            let Some((handed_out, held)) = drawn(device) else {
                continue;
            };
            if self.one_moment {
                writeln!(f, "\n{}, when the snapshot was taken", title(device))?;
            } else {
                writeln!(f, "\n{}: {}", title(device), legend(handed_out, held))?;
                plot(&self.run, handed_out, held, f)?;
            }
            let mut table = Table::new([
                ("", Align::Left),
                ("most", Align::Right),
                ("at", Align::Right),
            ]);
            for curve in &device.curves {
                table.row([
                    curve.name.to_string(),
                    bytes(curve.peak),
                    match self.one_moment {
                        true => String::new(),
                        false => span(curve.peak_ns),
                    },
                ]);
            }
            write!(f, "\n{table}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
