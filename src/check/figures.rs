//! Figures of a recording that are checked, and kept in a baseline.

use serde::Deserialize;

use crate::output::answer::ONE_MOMENT;
use crate::report::{FindingKind, Report, Topic};

/// Most call sites at the peak that are kept.
const HOLDERS: usize = 10;

/// Figures of one recording.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Rank of the process in its job, if it has one.
    #[serde(default)]
    pub rank: Option<String>,
    /// Figures of each used device.
    #[serde(default, rename = "device")]
    pub devices: Vec<Device>,
    /// Certain growth of live memory by layer.
    #[serde(default)]
    pub growth: Vec<Growth>,
    /// Bytes that iterations certainly left allocated.
    #[serde(default)]
    pub leaked: u64,
    /// Number of requests that ran out of memory.
    #[serde(default)]
    pub out_of_memory: u64,
    /// Reason for which growth and leaks are uncertain, if they are. A baseline does not have it.
    #[serde(skip)]
    pub untold: Option<String>,
    /// Reason for which the recording may lack a failed request. A baseline does not have it.
    #[serde(skip)]
    pub unread: Option<&'static str>,
}

/// Figures of a device, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Device ordinal, if it is known.
    #[serde(default)]
    pub gpu: Option<u8>,
    /// Kind of the peak: `tensors` or `device memory`.
    pub of: String,
    /// Most bytes that were live.
    pub peak: u64,
    /// Most bytes that were held from the driver.
    pub reserved: u64,
    /// Call sites that held most at the peak.
    #[serde(default, rename = "holder")]
    pub holders: Vec<Holder>,
}

/// Bytes of a call site at the peak.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// Name of the function, with its place.
    pub by: String,
    /// Bytes of its live blocks.
    pub bytes: u64,
}

/// Growth of live memory on one layer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Growth {
    /// Kind of memory: `tensors`, `device memory`, `pinned host memory` and so on.
    pub of: String,
    /// Growth of live bytes in each iteration.
    pub per_iteration: u64,
    /// Sentence about the growth.
    #[serde(skip)]
    pub text: String,
}

impl Figures {
    /// Returns the figures of a report.
    pub fn of(report: &Report) -> Figures {
        let summary = &report.summary;
        let devices = summary.devices.iter().map(|device| {
            let (of, peak, framework) = match &device.tensors {
                Some(tensors) => ("tensors", tensors.tensors.peak, tensors.reserved_peak),
                None => ("device memory", device.requested.peak, 0),
            };
            let held = report.peaks.iter().filter(|held| held.of == of);
            let held = held.filter(|held| held.device == device.device);
            let holders = held.flat_map(|held| &held.holders).take(HOLDERS);
            Device {
                gpu: device.device,
                of: of.to_string(),
                peak,
                // A snapshot has a framework's segments only.
                reserved: device.reserved.peak.max(framework),
                holders: holders
                    .map(|holder| Holder {
                        by: holder.who.in_a_sentence(),
                        bytes: holder.bytes,
                    })
                    .collect(),
            }
        });
        let found = |kind| {
            let findings = report.findings.iter();
            findings.filter(move |one| one.kind == kind && one.sure)
        };
        let growth = found(FindingKind::Growth).map(|one| Growth {
            of: one.of.to_string(),
            per_iteration: one.per_iteration.unwrap_or(0.0).round() as u64,
            text: one.text.clone(),
        });
        let likely = report.findings.iter();
        let mut likely = likely.filter(|one| one.kind == FindingKind::Growth && !one.sure);
        let likely = likely
            .next()
            .map(|one| format!("likely: {} ({})", one.text, one.why));
        let untold = report.untold.iter().find_map(|one| match one.topic {
            Topic::Growth => Some(one.what.clone()),
            Topic::History => Some(ONE_MOMENT.to_string()),
            _ => None,
        });
        Figures {
            rank: report.process.rank.clone(),
            devices: devices.collect(),
            growth: growth.collect(),
            leaked: found(FindingKind::Growth).fold(0, |sum, one| one.bytes.saturating_add(sum)),
            out_of_memory: summary.out_of_memory_count,
            untold: likely.or(untold),
            unread: report.unread,
        }
    }

    /// Growth of a layer in each iteration, bytes.
    pub fn growth_of(&self, of: &str) -> u64 {
        let growth = self.growth.iter().find(|growth| growth.of == of);
        growth.map_or(0, |growth| growth.per_iteration)
    }
}

impl Device {
    /// Names the peak: `tensors on gpu 0`.
    pub fn in_words(&self) -> String {
        match self.gpu {
            Some(gpu) => format!("{} on gpu {gpu}", self.of),
            None => self.of.clone(),
        }
    }
}
