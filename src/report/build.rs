//! Builds the report of a recording.

use serde::Serialize;

use super::complete::complete;
use super::figures::Summary;
use super::findings::{Finding, Findings, Topic, Untold};
use super::overview::{HOLDERS, LayerFindings, Overview};
use super::summary::PeakOf;
use crate::device_memory::{DeviceMemory, MemorySums, Spare};
use crate::loops::{Given, Iterations};
use crate::output::answer::{layer_name, unread};
use crate::output::holder::{Holder, merged};
use crate::peak::{Part, Peak, composition, to_lower};
use crate::recording::{Names, Owned, Process, Recording};
use crate::top::End;
use gpushim_trace::Event;

/// Number of stacks with most bytes that are resolved. Stacks with the same label form one row.
const NAMED: usize = 512;
/// Most owners in a report.
const OWNERS: usize = 3;

/// A trace's report.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// Path of the trace.
    pub trace: String,
    /// Name and version of the format.
    pub format: String,
    /// Wall clock at the start, ns since 1970.
    pub started_wall_ns: u64,
    /// Facts about the process, keys and values in their order; a key may come several times.
    pub facts: Vec<(String, String)>,
    /// The end of the process, if it has ended.
    pub end: End,
    /// Figures from the events.
    pub summary: Summary,
    /// The memory of each device, by owner.
    pub memory: Vec<MemoryOfDevice>,
    /// The stacks that held memory at the peaks.
    pub peaks: Vec<HeldAtPeak>,
    /// Findings, the most important first.
    pub findings: Vec<Finding>,
    /// If there are iterations and memory does not grow: a sentence that says so.
    pub steady: Option<String>,
    /// Questions that the recording does not answer, and how to record next time.
    pub untold: Vec<Untold>,
    /// Damaged or missing parts of the file.
    pub problems: Vec<String>,
    /// True if a part of the file is cut off or makes no sense.
    pub is_damaged: bool,
    /// Why it cannot show that something never happened; `None` if it has all that happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<&'static str>,
    /// The process, decoded from the facts.
    #[serde(skip)]
    pub process: Process,
    /// True if the times of events were recorded.
    #[serde(skip)]
    pub has_times: bool,
    /// The iterations that the user set.
    #[serde(skip)]
    pub iterations: Option<Iterations>,
}

/// The memory of a device at two moments, by owner.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemoryOfDevice {
    /// When most was held from the driver, and of these moments when most was handed out.
    pub at_peak: DeviceMemory,
    /// The moment after the last event.
    pub at_end: DeviceMemory,
    /// Memory that the cache of a server could have been given, too, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spare: Option<Spare>,
}

impl MemoryOfDevice {
    fn all(
        memory_sums: &MemorySums,
        peaks: &[HeldAtPeak],
        names: &mut dyn Names,
    ) -> Vec<MemoryOfDevice> {
        // A training has a known composition of its peak; a server has none.
        let is_training = peaks.iter().any(|peak| peak.composition.is_some());
        let ends = DeviceMemory::of(memory_sums, true, names);
        let peaks = DeviceMemory::of(memory_sums, false, names);
        let mut ends: Vec<Option<DeviceMemory>> = ends.into_iter().map(Some).collect();
        let mut all = Vec::new();
        for at_peak in peaks {
            let its = (ends.iter_mut())
                .find(|end| end.as_ref().is_some_and(|end| end.device == at_peak.device))
                .and_then(Option::take);
            let at_end = its.unwrap_or_else(|| at_peak.emptied());
            all.push(MemoryOfDevice {
                spare: (!is_training)
                    .then(|| Spare::of(memory_sums, &at_end, names))
                    .flatten(),
                at_peak,
                at_end,
            });
        }
        all
    }
}

/// The stacks that held memory of a device at the peak.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HeldAtPeak {
    /// `tensors` or `device memory`.
    pub of: &'static str,
    /// Device ordinal.
    pub device: Option<u8>,
    /// When, ns since the start.
    pub ns: u64,
    /// In which iteration, from 0.
    pub iteration: Option<usize>,
    /// Bytes that were live.
    pub bytes: u64,
    /// The composition, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composition: Option<Vec<Part>>,
    /// Whether that is sure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composition_sure: Option<bool>,
    /// Advice that makes its largest part smaller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_lower: Option<&'static str>,
    /// The stacks that held most, the first ones.
    pub holders: Vec<Holder>,
    /// Who kept most, the first ones, as far as that was recorded.
    pub owners: Vec<Owned>,
    /// Bytes held by others, and how many those are.
    pub others: (u64, usize),
    /// Bytes of blocks that were live when the events begin, of which nothing else is known.
    pub unknown: u64,
}

impl HeldAtPeak {
    fn all(
        recording: &dyn Recording,
        overview: &Overview,
        names: &mut dyn Names,
    ) -> Vec<HeldAtPeak> {
        let Some(told) = overview.layers.first() else {
            return Vec::new();
        };
        let mut one = |(of, peak): &(PeakOf, Peak)| {
            let (named, rest) = peak.holders.split_at(peak.holders.len().min(NAMED));
            let mut holders = merged(
                named
                    .iter()
                    .map(|held| Holder::of(recording, names, held, of.bytes)),
            );
            let rest: Vec<u64> = (holders.drain(holders.len().min(HOLDERS)..))
                .map(|holder| holder.bytes)
                .chain(rest.iter().map(|held| held.bytes))
                .collect();
            let around = told.around.as_ref().filter(|(peak, ..)| peak == of);
            let journal = told.followed.journal.as_ref();
            let parts = around.zip(journal).and_then(|((_, live), journal)| {
                composition(recording, names, told.iterations(), journal, live)
            });
            HeldAtPeak {
                of: layer_name(of.focus.layer),
                device: of.focus.device.filter(|device| *device != Event::NO_DEVICE),
                ns: of.ns,
                iteration: (told.iterations())
                    .filter(|all| all.certainty.sure)
                    .and_then(|all| all.of(of.ticket)),
                bytes: of.bytes,
                others: (
                    rest.iter().fold(0, |sum, bytes| bytes.saturating_add(sum)),
                    rest.len(),
                ),
                owners: peak.owners.iter().take(OWNERS).cloned().collect(),
                unknown: of.bytes.saturating_sub(peak.bytes),
                to_lower: to_lower(parts.as_ref(), of.bytes),
                composition_sure: parts.as_ref().map(|all| all.sure),
                composition: parts.map(|all| all.parts),
                holders,
            }
        };
        let mut peaks: Vec<HeldAtPeak> = told.peaks.iter().map(&mut one).collect();
        peaks.sort_by_key(|peak| peak.device);
        peaks
    }
}

impl Report {
    /// Reads all events of a trace and builds its report. `given` is the start of its iterations
    /// according to the user.
    pub fn of(trace: &dyn Recording, given: Option<&Given>) -> Report {
        Report::with_layers(trace, given).0
    }

    /// Builds the report, and returns it with the findings about the blocks of each layer.
    pub fn with_layers(
        trace: &dyn Recording,
        given: Option<&Given>,
    ) -> (Report, Vec<LayerFindings>) {
        let mut overview = Overview::of(trace, given);
        let mut names = trace.names();
        if overview.summary.events.wrapped {
            complete(&mut overview.summary, &trace.timeline());
        }
        let found = Findings::of(trace, &mut overview, &mut *names);
        let main = overview.layers.first();
        let iterations = main.and_then(|layer| layer.iterations().cloned());
        let peaks = HeldAtPeak::all(trace, &overview, &mut *names);
        let report = Report {
            memory: MemoryOfDevice::all(&overview.memory_sums, &peaks, &mut *names),
            trace: trace.path().display().to_string(),
            format: trace.format(),
            started_wall_ns: trace.wall_ns(),
            facts: trace.facts(),
            process: trace.process(),
            has_times: trace.has_times(),
            peaks,
            end: End::of(trace),
            summary: overview.summary,
            findings: found.all,
            steady: found.steady,
            untold: found.untold,
            problems: trace.problems(),
            is_damaged: trace.coverage().damaged,
            unread: unread(trace),
            iterations: iterations.filter(|_| given.is_some()),
        };
        (report, overview.layers)
    }

    /// True if the recording is a snapshot without a history, which holds one moment.
    pub fn is_one_moment(&self) -> bool {
        self.untold.iter().any(|one| one.topic == Topic::History)
    }
}
