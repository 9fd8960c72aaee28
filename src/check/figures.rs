//! The figures of a recording that are checked, and kept in a baseline.

use serde::Deserialize;

use crate::output::answer::ONE_MOMENT;
use crate::report::{FindingKind, Report, Topic};

/// Call sites at the peak that are kept.
const HOLDERS: usize = 10;

/// What a recording comes to.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// The rank of the process in its job, if it has one.
    #[serde(default)]
    pub rank: Option<String>,
    /// By device.
    #[serde(default, rename = "device")]
    pub devices: Vec<Device>,
    /// Bytes that live memory grows by with each iteration, where that is certain.
    #[serde(default)]
    pub growth: Vec<Growth>,
    /// Bytes that iterations left behind, where that is certain.
    #[serde(default)]
    pub leaked: u64,
    /// Requests that ran out of memory.
    #[serde(default)]
    pub out_of_memory: u64,
    /// Why growth and leaks could not be told, if that is so. Of no use in a baseline.
    #[serde(skip)]
    pub untold: Option<String>,
    /// Why a request may have failed that is not in the recording. Of no use in a baseline.
    #[serde(skip)]
    pub unread: Option<&'static str>,
}

/// The figures of a device, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its ordinal, if it is known.
    #[serde(default)]
    pub gpu: Option<u8>,
    /// Of what the peak is: `tensors` or `device memory`.
    pub of: String,
    /// The most that was live.
    pub peak: u64,
    /// The most that was held from the driver.
    pub reserved: u64,
    /// Call sites that held most at the peak.
    #[serde(default, rename = "holder")]
    pub holders: Vec<Holder>,
}

/// Bytes that a call site held at the peak.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// The function, with its place.
    pub by: String,
    /// Bytes.
    pub bytes: u64,
}

/// Growth of a layer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Growth {
    /// Of what: `tensors`, `device memory`, `pinned host memory` and so on.
    pub of: String,
    /// Bytes per iteration.
    pub per_iteration: u64,
    /// It in a sentence.
    #[serde(skip)]
    pub text: String,
}

impl Figures {
    /// Of a report.
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
            rank: report.fact("rank").map(str::to_string),
            devices: devices.collect(),
            growth: growth.collect(),
            leaked: found(FindingKind::Growth).fold(0, |sum, one| one.bytes.saturating_add(sum)),
            out_of_memory: summary.out_of_memory_count,
            untold: likely.or(untold),
            unread: report.unread,
        }
    }

    /// Bytes that a layer grows by with each iteration.
    pub fn growth_of(&self, of: &str) -> u64 {
        let growth = self.growth.iter().find(|growth| growth.of == of);
        growth.map_or(0, |growth| growth.per_iteration)
    }
}

impl Device {
    /// What its peak is of, in words: `tensors on gpu 0`.
    pub fn in_words(&self) -> String {
        match self.gpu {
            Some(gpu) => format!("{} on gpu {gpu}", self.of),
            None => self.of.clone(),
        }
    }
}
