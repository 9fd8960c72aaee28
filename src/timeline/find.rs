//! Memory over a run, in columns of time, and the phases of the program.

use serde::Serialize;

use crate::phases::Phase;
use crate::recording::Recording;
use gpushim_trace::{DeviceTimeline, Series, Span};

/// Number of phases that are shown: the longest.
const PHASES: usize = 6;

/// A run over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Run {
    /// When it ends, ns since the start.
    pub end_ns: u64,
    /// Its devices, in the order in which they were first used.
    pub devices: Vec<Curves>,
    /// The ranges that the program announced, without numbers, in the order of their depth.
    pub phases: Vec<During>,
    /// True if the curves reach over the whole run without a gap.
    pub is_complete: bool,
}

/// The memory of a device over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Curves {
    /// Device ordinal, if known.
    pub device: Option<u8>,
    /// The series with values.
    pub curves: Vec<Curve>,
}

/// One quantity over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Curve {
    /// The name of the series.
    pub name: &'static str,
    /// The least and the most in each column, bytes; `None` where nothing is known.
    pub columns: Vec<Option<(u64, u64)>>,
    /// The most of all, bytes.
    pub peak: u64,
    /// When that was, ns since the start; as exactly as the trace keeps it.
    pub peak_ns: u64,
}

/// When a phase took place.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct During {
    /// Its name without numbers.
    pub name: String,
    /// Ranges around it.
    pub depth: usize,
    /// In all, ns.
    pub ns: u64,
    /// The part of each column that it took, 0 to 1.
    pub columns: Vec<f32>,
}

/// Curves by their names, in the order in which people read them.
const CURVES: [(Series, &str); 6] = [
    (Series::Tensors, "tensors"),
    (Series::TensorsReserved, "reserved by the framework"),
    (Series::Requested, "requested"),
    (Series::Allocated, "allocated"),
    (Series::Reserved, "reserved"),
    (Series::Driver, "in use by all processes"),
];

impl Run {
    /// A recording in `columns` columns; of one device only if `device` is given.
    pub fn of(recording: &dyn Recording, device: Option<u8>, columns: usize) -> Run {
        let timeline = recording.timeline();
        let columns = columns.max(1);
        let all = timeline.devices.iter();
        let devices: Vec<&DeviceTimeline> = all
            .filter(|one| device.is_none_or(|device| one.device == device))
            .collect();
        let (phases, last_ns) = Phase::over_time(recording);
        let ends = devices.iter().flat_map(|one| {
            let last = |series| one.get(series).last().map_or(0, |span| span.to_ns);
            Series::ALL.map(last)
        });
        // The last stretch may go on beyond the last event; then it is the events that end the run.
        let end_ns = match last_ns {
            0 => ends.max().unwrap_or(0),
            last => last,
        };
        let curves = |one: &&DeviceTimeline| Curves {
            device: (one.device != gpushim_trace::Event::NO_DEVICE).then_some(one.device),
            curves: CURVES
                .iter()
                .filter_map(|(series, name)| curve(name, one.get(*series), end_ns, columns))
                .collect(),
        };
        Run {
            devices: devices.iter().map(curves).collect(),
            phases: longest(phases, end_ns, columns),
            end_ns,
            is_complete: timeline.is_complete && timeline.gaps == 0,
        }
    }
}

/// Columns are of one width; the last ends where the run does.
fn width(end_ns: u64, columns: usize) -> u64 {
    end_ns
        .checked_div(columns as u64)
        .unwrap_or(0)
        .saturating_add(1)
}

/// A series in columns; `None` if it has no value above zero.
pub(crate) fn curve(
    name: &'static str,
    spans: &[Span],
    end_ns: u64,
    columns: usize,
) -> Option<Curve> {
    let width = width(end_ns, columns);
    let peak = spans
        .iter()
        .max_by_key(|span| (span.max, std::cmp::Reverse(span.from_ns)))?;
    if peak.max == 0 {
        return None;
    }
    let mut all: Vec<Option<(u64, u64)>> = vec![None; columns];
    for span in spans {
        let index = |ns: u64| {
            usize::try_from(ns / width)
                .unwrap_or(usize::MAX)
                .min(columns - 1)
        };
        let (from, to) = (index(span.from_ns), index(span.to_ns.saturating_sub(1)));
        for column in all.iter_mut().skip(from).take(to.saturating_sub(from) + 1) {
            let (least, most) = column.unwrap_or((span.min, span.max));
            *column = Some((least.min(span.min), most.max(span.max)));
        }
    }
    bridge(&mut all);
    Some(Curve {
        name,
        columns: all,
        peak: peak.max,
        peak_ns: peak.from_ns,
    })
}

/// Fills columns without a change, for which nothing was written.
///
/// Each gets the values that the columns before and after have in common.
fn bridge(columns: &mut [Option<(u64, u64)>]) {
    let mut last: Option<(usize, (u64, u64))> = None;
    for index in 0..columns.len() {
        let Some(here) = columns.get(index).copied().flatten() else {
            continue;
        };
        if let Some((from, before)) = last {
            let (least, most) = (before.0.max(here.0), before.1.min(here.1));
            let between = columns.iter_mut().take(index).skip(from + 1);
            between.for_each(|column| *column = Some((least.min(most), most.max(least))));
        }
        last = Some((index, here));
    }
}

/// The longest phases, in the order of their depth.
fn longest(mut phases: Vec<Phase>, end_ns: u64, columns: usize) -> Vec<During> {
    phases.sort_by_key(|phase| std::cmp::Reverse(phase.ns));
    phases.truncate(PHASES);
    phases.sort_by_key(|phase| phase.depth);
    let during = |phase: Phase| During {
        columns: covered(&phase.during, end_ns, columns),
        name: phase.name,
        depth: phase.depth,
        ns: phase.ns,
    };
    phases.into_iter().map(during).collect()
}

/// The part of each column that stretches of time cover.
fn covered(during: &[(u64, u64)], end_ns: u64, columns: usize) -> Vec<f32> {
    let width = width(end_ns, columns);
    let mut all = vec![0.0; columns];
    for (from, to) in during {
        let mut at = *from;
        while at < *to {
            let index = at / width;
            let next = (index + 1).saturating_mul(width).min(*to);
            let Some(column) = all.get_mut(usize::try_from(index).unwrap_or(usize::MAX)) else {
                break;
            };
            *column = f32::min(*column + (next - at) as f32 / width as f32, 1.0);
            at = next;
        }
    }
    all
}

#[cfg(test)]
mod tests;
