//! OpenMetrics text of the present state of runs, for a node exporter's textfile collector.
//!
//! Format: the OpenMetrics specification 1.0.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use crate::export::processes;
use crate::output::escape::shown;
use crate::recording::Recording;
use crate::report::figures_of;
use crate::shared_limit::SharedLimit;
use gpushim_trace::{Event, Kind, Series};

/// One metric: name, type, help, and its unit, by which its name ends.
struct Family {
    name: &'static str,
    kind: &'static str,
    unit: &'static str,
    help: &'static str,
    /// Labels and value of each sample.
    samples: Vec<(String, u64)>,
}

impl Family {
    const fn new(
        name: &'static str,
        kind: &'static str,
        unit: &'static str,
        help: &'static str,
    ) -> Family {
        Family {
            name,
            kind,
            unit,
            help,
            samples: Vec::new(),
        }
    }
}

/// The levels that the timeline ends with, as metrics.
const LEVELS: [(Series, &str, &str); 6] = [
    (
        Series::Requested,
        "gpushim_requested_bytes",
        "Bytes of device memory that the program requested and holds.",
    ),
    (
        Series::Allocated,
        "gpushim_allocated_bytes",
        "Bytes of the blocks that the program holds.",
    ),
    (
        Series::Reserved,
        "gpushim_reserved_bytes",
        "Bytes of device memory held from the driver.",
    ),
    (
        Series::Tensors,
        "gpushim_framework_allocated_bytes",
        "Bytes that the framework's allocator has allocated.",
    ),
    (
        Series::TensorsReserved,
        "gpushim_framework_reserved_bytes",
        "Bytes that the framework says it holds.",
    ),
    (
        Series::Driver,
        "gpushim_driver_used_bytes",
        "Bytes of the device in use by all processes, according to the driver.",
    ),
];

/// Metrics other than levels: name, kind, unit, help.
const BLOCKS: (&str, &str, &str, &str) = (
    "gpushim_live_blocks",
    "gauge",
    "",
    "Blocks and tensors that are live.",
);
const DEVICE: (&str, &str, &str, &str) = (
    "gpushim_device_bytes",
    "gauge",
    "bytes",
    "Bytes of memory that the device has.",
);
const EVENTS: (&str, &str, &str, &str) = (
    "gpushim_events",
    "counter",
    "",
    "Events that were recorded.",
);
const LOST: (&str, &str, &str, &str) = (
    "gpushim_events_lost",
    "counter",
    "",
    "Events that can no longer be read.",
);
const OUT_OF_MEMORY: (&str, &str, &str, &str) = (
    "gpushim_out_of_memory",
    "counter",
    "",
    "Requests that ran out of memory, among the events that can be read.",
);

const LIMIT: (&str, &str, &str, &str) = (
    "gpushim_shared_limit_bytes",
    "gauge",
    "bytes",
    "Bytes of a device that all processes with a ledger may hold together.",
);
const PART: (&str, &str, &str, &str) = (
    "gpushim_shared_limit_held_bytes",
    "gauge",
    "bytes",
    "Bytes of a device that a process holds of a shared limit.",
);

/// The names of all metrics, as they are asked for.
#[cfg(test)]
pub(super) fn names() -> Vec<String> {
    let levels = LEVELS.iter().map(|(_, name, _)| name.to_string());
    let others = [BLOCKS, DEVICE, EVENTS, LOST, OUT_OF_MEMORY, LIMIT, PART];
    let others = others.map(|(name, kind, ..)| format!("{name}{}", suffix(kind)));
    levels.chain(others).collect()
}

/// Metrics of all recordings at the last recorded moment of each.
pub fn metrics(recordings: &[Box<dyn Recording>]) -> String {
    let mut levels = LEVELS.map(|(_, name, help)| Family::new(name, "gauge", "bytes", help));
    let of = |(name, kind, unit, help)| Family::new(name, kind, unit, help);
    let [mut blocks, mut sizes] = [BLOCKS, DEVICE].map(of);
    let [mut events, mut lost, mut out_of_memory] = [EVENTS, LOST, OUT_OF_MEMORY].map(of);
    let [limits, parts] = shared_limits(recordings);
    let (processes, _) = processes(recordings);
    for (recording, process) in recordings.iter().zip(&processes) {
        let rank = process.rank.clone().unwrap_or_default();
        let whose = format!(
            "pid=\"{}\",host=\"{}\",rank=\"{}\"",
            process.pid,
            escaped(&process.host),
            escaped(&rank)
        );
        // Two files of one process: metrics must not come twice with the same labels.
        let is_again = events.samples.iter().any(|(labels, _)| *labels == whose);
        let whose = match is_again {
            true => format!(
                "{whose},file=\"{}\"",
                escaped(&recording.path().to_string_lossy())
            ),
            false => whose,
        };
        let with = |device: u8| match device {
            Event::NO_DEVICE => format!("{whose},gpu=\"\""),
            device => format!("{whose},gpu=\"{device}\""),
        };
        let now = Now::of(&**recording);
        let gpus = recording.process().gpus.into_iter();
        let gpus = gpus.filter(|(ordinal, _)| now.blocks.contains_key(ordinal));
        sizes
            .samples
            .extend(gpus.map(|(ordinal, gpu)| (with(ordinal), gpu.bytes)));
        for ((series, ..), family) in LEVELS.iter().zip(&mut levels) {
            for (device, value) in now.get(*series) {
                family.samples.push((with(*device), *value));
            }
        }
        let sample = |(device, count): (&u8, &u64)| (with(*device), *count);
        blocks.samples.extend(now.blocks.iter().map(sample));
        let failures = now.failures.iter().map(sample);
        out_of_memory.samples.extend(failures);
        let coverage = recording.coverage();
        events.samples.push((whose.clone(), coverage.recorded));
        lost.samples
            .push((whose, coverage.lost.saturating_add(coverage.torn)));
    }
    let mut text = String::new();
    let families = levels.iter().chain([
        &blocks,
        &sizes,
        &events,
        &lost,
        &out_of_memory,
        &limits,
        &parts,
    ]);
    for family in families.filter(|family| !family.samples.is_empty()) {
        render(family, &mut text);
    }
    text.push_str("# EOF\n");
    text
}

/// Returns the limits that processes share, and the part of each.
fn shared_limits(recordings: &[Box<dyn Recording>]) -> [Family; 2] {
    let of = |(name, kind, unit, help)| Family::new(name, kind, unit, help);
    let [mut limits, mut parts] = [LIMIT, PART].map(of);
    let paths = recordings.iter().filter_map(|one| one.process().ledger);
    for path in paths.collect::<BTreeSet<_>>() {
        // Metrics are of running processes: without one there may be no ledger any more.
        let Ok(limit) = SharedLimit::read(Path::new(&path)) else {
            continue;
        };
        let ledger = format!("ledger=\"{}\"", escaped(&path));
        let devices = limit.devices();
        limits.samples.extend(
            devices.map(|(device, _, limit)| (format!("{ledger},device=\"{device}\""), limit)),
        );
        parts.samples.extend(limit.parts.iter().map(|part| {
            let rank = part.rank.map_or(String::new(), |rank| rank.to_string());
            let labels = format!(
                "{ledger},device=\"{}\",pid=\"{}\",rank=\"{rank}\"",
                part.device, part.pid
            );
            (labels, part.held)
        }));
    }
    [limits, parts]
}

/// A number for each device.
type ByDevice = BTreeMap<u8, u64>;

/// Present state of a running process.
struct Now {
    levels: [ByDevice; 6],
    blocks: ByDevice,
    failures: ByDevice,
}

impl Now {
    /// State as a report has it at the end.
    ///
    /// A level that the report lacks is the most of the last stretch of the timeline.
    fn of(recording: &dyn Recording) -> Now {
        let mut now = Now {
            levels: Default::default(),
            blocks: ByDevice::new(),
            failures: ByDevice::new(),
        };
        for device in recording.timeline().devices {
            for (series, level) in Series::ALL.into_iter().zip(&mut now.levels) {
                let last = device.get(series).last();
                level.extend(last.map(|last| (device.device, last.max)));
            }
            now.failures.insert(device.device, 0);
            now.blocks.insert(device.device, 0);
        }
        match recording.live() {
            Some(live) => {
                for block in live {
                    *now.blocks.entry(block.event.device).or_default() += 1;
                }
            }
            None => now.blocks.clear(),
        }
        for device in figures_of(recording).devices {
            let ordinal = device.device.unwrap_or(Event::NO_DEVICE);
            let framework = device.tensors.filter(|tensors| tensors.reserved_peak > 0);
            let ends = [
                Some(device.requested.end),
                Some(device.allocated.end),
                Some(device.reserved.end),
                framework.as_ref().map(|tensors| tensors.allocated_end),
                framework.as_ref().map(|tensors| tensors.reserved_end),
                device.in_use.map(|in_use| in_use.end),
            ];
            for (level, end) in now.levels.iter_mut().zip(ends) {
                level.extend(end.map(|end| (ordinal, end)));
            }
        }
        for record in recording.events() {
            if matches!(
                record.event.kind,
                Kind::OutOfMemory | Kind::TensorOutOfMemory
            ) {
                *now.failures.entry(record.event.device).or_default() += 1;
            }
        }
        now
    }

    fn get(&self, series: Series) -> impl Iterator<Item = (&u8, &u64)> {
        self.levels.get(series as usize).into_iter().flatten()
    }
}

/// Ending of the name of a sample.
fn suffix(kind: &str) -> &'static str {
    match kind {
        "counter" => "_total",
        _ => "",
    }
}

fn render(family: &Family, text: &mut String) {
    let Family {
        name,
        kind,
        unit,
        help,
        ..
    } = family;
    // Writing to a text cannot fail.
    let _ = writeln!(text, "# TYPE {name} {kind}");
    if !unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = writeln!(text, "# HELP {name} {help}");
    let suffix = suffix(kind);
    for (labels, value) in &family.samples {
        let _ = writeln!(text, "{name}{suffix}{{{labels}}} {value}");
    }
}

/// Value of a label, escaped.
fn escaped(value: &str) -> String {
    // Characters that cannot be seen become `\u{1b}`, because labels are read in terminals, too.
    // Line feeds have their own escape.
    let lines: Vec<String> = value.split('\n').map(shown).collect();
    lines
        .join("\n")
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
