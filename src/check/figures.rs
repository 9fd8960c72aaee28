//! Figures of a report that are checked, and kept in a baseline.

use crate::compare::{Figure, Growth, MemoryFigures, RunFigures};
use crate::output::answer::{DAMAGED, ONE_MOMENT};
use crate::report::{FindingKind, Report, Topic};

/// Most call sites at the peak that are kept.
const HOLDERS: usize = 10;

/// Returns the figures of a report.
pub fn figures(report: &Report) -> RunFigures {
    let summary = &report.summary;
    let devices = summary.devices.iter().map(|device| {
        let (of, peak, framework) = match &device.tensors {
            Some(tensors) => ("tensors", tensors.tensors.peak, tensors.reserved_peak),
            None => ("device memory", device.requested.peak, 0),
        };
        let held = report.peaks.iter().filter(|held| held.of == of);
        let held = held.filter(|held| held.device == device.device);
        let holders = held.flat_map(|held| &held.holders).take(HOLDERS);
        MemoryFigures {
            gpu: device.device,
            of: of.to_string(),
            peak,
            // A snapshot has a framework's segments only.
            reserved: device.reserved.peak.max(framework),
            holders: holders
                .map(|holder| {
                    let who = &holder.who;
                    let name = who.with_caller().unwrap_or_else(|| who.in_a_sentence());
                    Figure::of(name, holder.bytes)
                })
                .collect(),
            ..MemoryFigures::default()
        }
    });
    let grows = report.findings.iter();
    let grows = grows.filter(|one| one.kind == FindingKind::Growth);
    let (sure, likely): (Vec<_>, Vec<_>) = grows.partition(|one| one.sure);
    let growth = sure.iter().map(|one| Growth {
        of: one.of.to_string(),
        per_iteration: one.per_iteration.unwrap_or(0.0).round() as u64,
        text: one.text.clone(),
    });
    let likely = likely.first();
    let likely = likely.map(|one| format!("likely: {} ({})", one.text, one.why));
    let untold = || {
        report.untold.iter().find_map(|one| match one.topic {
            Topic::Growth => Some(one.what.clone()),
            Topic::History => Some(ONE_MOMENT.to_string()),
            _ => None,
        })
    };
    let damage = || report.is_damaged.then(|| DAMAGED.to_string());
    RunFigures {
        rank: report.process.rank.clone(),
        devices: devices.collect(),
        growth: growth.collect(),
        leaked: (sure.iter()).fold(0, |sum, one| one.bytes.saturating_add(sum)),
        out_of_memory: summary.out_of_memory_count,
        untold: likely.or_else(untold).or_else(damage),
        unread: report.unread,
    }
}
