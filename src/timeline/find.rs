//! Memory over a run, in columns of time, and the phases of the program.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::loops::without_numbers;
use crate::phases::busiest;
use crate::recording::Recording;
use gpushim_trace::{DeviceTimeline, Kind, Series, Span};

/// The most names of phases.
const NAMES: usize = 1 << 12;
/// The most ranges that are open at once and may end in any order; more are not followed.
const STARTED: usize = 64;
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
        let mut open = Open::new(busiest(recording));
        for record in recording.events() {
            open.feed(recording, &record);
        }
        let ends = devices.iter().flat_map(|one| {
            let last = |series| one.get(series).last().map_or(0, |span| span.to_ns);
            Series::ALL.map(last)
        });
        // The last stretch may go on beyond the last event; then it is the events that end the run.
        let end_ns = match open.last_ns {
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
            phases: open.finish(end_ns, columns),
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

/// The ranges of a thread, and ranges that may end in any order.
struct Open {
    thread: Option<u32>,
    /// Place in `all` of a name's id.
    names: FxHashMap<u64, usize>,
    /// Open now: place in `all`, and since when.
    open: Vec<(usize, u64)>,
    /// Open ranges by number. These may end on another thread or in another order.
    started: BTreeMap<u64, (usize, u64)>,
    all: Vec<Phase>,
    last_ns: u64,
}

struct Phase {
    name: String,
    depth: usize,
    ns: u64,
    /// Begin and end of each stretch of time. Adjacent stretches are merged when there are too
    /// many.
    during: Vec<(u64, u64)>,
}

/// More stretches than can be seen are put together.
const STRETCHES: usize = 1 << 13;

impl Phase {
    fn add(&mut self, from: u64, to: u64) {
        self.ns = self.ns.saturating_add(to.saturating_sub(from));
        self.during.push((from, to));
        if self.during.len() > STRETCHES {
            let pairs = self.during.chunks(2);
            let joined = pairs.filter_map(|pair| Some((pair.first()?.0, pair.last()?.1)));
            self.during = joined.collect();
        }
    }
}

impl Open {
    fn new(thread: Option<u32>) -> Open {
        Open {
            thread,
            names: FxHashMap::default(),
            open: Vec::new(),
            started: BTreeMap::new(),
            all: Vec::new(),
            last_ns: 0,
        }
    }

    fn feed(&mut self, recording: &dyn Recording, record: &gpushim_trace::Record) {
        self.last_ns = record.ns;
        let event = &record.event;
        match event.kind {
            Kind::RangeStart if self.started.len() < STARTED => {
                let phase = self.of_name(recording, event.address);
                let before = self.started.insert(event.size, (phase, record.ns));
                self.end(before, record.ns);
            }
            Kind::RangeEnd => {
                let open = self.started.remove(&event.size);
                self.end(open, record.ns);
            }
            _ if self.thread != Some(event.thread) => {}
            Kind::RangePush => {
                let phase = self.of_name(recording, event.address);
                self.open.push((phase, record.ns));
            }
            Kind::RangePop => {
                let open = self.open.pop();
                self.end(open, record.ns);
            }
            _ => {}
        }
    }

    /// The phase of a range, by the id of its name.
    fn of_name(&mut self, recording: &dyn Recording, id: u64) -> usize {
        if let Some(phase) = self.names.get(&id) {
            return *phase;
        }
        let name = recording.text(id).unwrap_or_default();
        let depth = self.open.len() + self.started.len();
        let phase = self.phase(without_numbers(&name), depth);
        if self.names.len() < NAMES {
            self.names.insert(id, phase);
        }
        phase
    }

    fn phase(&mut self, name: String, depth: usize) -> usize {
        let known = self.all.iter().position(|phase| phase.name == name);
        known.unwrap_or_else(|| {
            if self.all.len() >= NAMES {
                return usize::MAX;
            }
            self.all.push(Phase {
                name,
                depth,
                ns: 0,
                during: Vec::new(),
            });
            self.all.len() - 1
        })
    }

    fn end(&mut self, open: Option<(usize, u64)>, ns: u64) {
        if let Some((phase, since)) = open
            && let Some(phase) = self.all.get_mut(phase)
        {
            phase.add(since, ns);
        }
    }

    fn finish(mut self, end_ns: u64, columns: usize) -> Vec<During> {
        let open = std::mem::take(&mut self.open).into_iter().rev();
        let started = std::mem::take(&mut self.started).into_values();
        for open in open.chain(started) {
            self.end(Some(open), end_ns);
        }
        self.all.sort_by_key(|phase| std::cmp::Reverse(phase.ns));
        self.all.truncate(PHASES);
        self.all.sort_by_key(|phase| phase.depth);
        let during = |phase: Phase| During {
            columns: covered(&phase.during, end_ns, columns),
            name: phase.name,
            depth: phase.depth,
            ns: phase.ns,
        };
        self.all.into_iter().map(during).collect()
    }
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
