//! Builds the summary of a recording from its report.

use std::time::SystemTime;

use super::summary::{
    Device, Finding, Holder, Iterations, Kept, OverTime, Phase, Process, RankSummary, Site, VERSION,
};
use crate::growth::Growth;
use crate::loops;
use crate::output::answer::layer_name;
use crate::phases;
use crate::recording::{CallSite, Function, Gpu, Names, Recording, blame};
use crate::report::{self, LayerFindings, Report};
use crate::symbols::line;
use crate::timeline::curve;
use crate::top::End;
use gpushim_trace::{Event, Kind, Layer, Series};

/// Most functions in the list of holders of the peak.
const HOLDERS: usize = 12;
/// Most stacks that are resolved to functions, the ones with most bytes first. The rest is counted
/// in `others`.
const NAMED: usize = 512;
/// Most functions of a stack.
const FRAMES: usize = 6;
const KEEPERS: usize = 4;
const FINDINGS: usize = 6;
const PHASES: usize = 16;
const PROBLEMS: usize = 4;
/// Number of columns over time.
const COLUMNS: usize = 64;
/// Most letters of a text; a hostile file may have gigabytes.
const LETTERS: usize = 400;

impl RankSummary {
    /// Builds a summary from a report of the recording and the findings about its layers.
    pub fn of(recording: &dyn Recording, report: &Report, layers: &[LayerFindings]) -> RankSummary {
        let names = &mut *recording.names();
        let main = layers.first();
        let placed = main.and_then(|layer| layer.iterations());
        let name = recording.path().file_name().unwrap_or_default();
        let devices = devices(recording, report, main, names);
        let over_time = over_time(recording, report, &devices);
        RankSummary {
            gpushim_summary: VERSION,
            gpushim: env!("CARGO_PKG_VERSION").to_string(),
            written_wall_ns: SystemTime::UNIX_EPOCH
                .elapsed()
                .map_or(0, |since| since.as_nanos() as u64),
            trace: name.to_string_lossy().into_owned(),
            format: report.format.clone(),
            process: process_of(
                &report.facts,
                report.started_wall_ns,
                report.summary.last_ns,
            ),
            end: End::of(recording),
            events: Kept {
                recorded: report.summary.events.recorded,
                readable: report.summary.events.readable,
                lost: report.summary.events.lost,
                wrapped: report.summary.events.wrapped,
            },
            problems: first(&report.problems, PROBLEMS),
            settings: settings(report),
            allocations: allocations(report, main),
            iterations: main.and_then(|layer| {
                let growth = Growth::of(&layer.followed)?;
                Some(iterations(placed?, &growth, names))
            }),
            phases: main.map_or(Vec::new(), |layer| phases_of(recording, layer)),
            out_of_memory: report.summary.out_of_memory_count,
            findings: findings(report),
            devices,
            over_time,
        }
    }

    /// Reads a recording and returns its summary.
    pub fn read(recording: &dyn Recording) -> RankSummary {
        let (report, layers) = Report::with_layers(recording, None);
        RankSummary::of(recording, &report, &layers)
    }
}

fn first(texts: &[String], most: usize) -> Vec<String> {
    texts.iter().take(most).map(|text| cut(text)).collect()
}

fn cut(text: &str) -> String {
    crate::cut::shortened(text, LETTERS)
}

/// Builds the process from the facts of its recording.
pub(super) fn process_of(
    facts: &[(String, String)],
    started_wall_ns: u64,
    last_ns: u64,
) -> Process {
    let fact = |key| {
        let mut facts = facts.iter();
        facts.find(|(name, _)| name == key).map(|(_, value)| value)
    };
    let number = |key| fact(key).and_then(|value| value.parse().ok());
    let text = |key| fact(key).map_or(String::new(), |value| cut(value));
    Process {
        host: text("host"),
        pid: number("pid"),
        rank: number("rank"),
        world: number("world"),
        job: fact("job").map(|job| cut(job)),
        started_wall_ns,
        last_ns,
        argv: text("argv"),
    }
}

/// Returns the settings that ranks of a job should share: gpushim's variables, versions and the
/// takeover.
fn settings(report: &Report) -> Vec<(String, String)> {
    let is_setting = |key: &str| {
        (key.starts_with("GPUSHIM_") && key != "GPUSHIM_TRACE")
            || ["library", "driver.cuda", "kernel", "exe"].contains(&key)
            || key.starts_with("takeover.")
    };
    let all = report.facts.iter();
    let all = all.filter(|(key, _)| is_setting(key));
    all.map(|(key, value)| (cut(key), cut(value))).collect()
}

fn allocations(report: &Report, main: Option<&LayerFindings>) -> u64 {
    let is_tensor = main.is_some_and(|layer| layer.focus.layer == Layer::Tensor);
    let classes = report.summary.classes.iter();
    let of = classes.filter(|class| (class.class == "tensor") == is_tensor);
    of.fold(0, |sum, class| sum.saturating_add(class.allocations))
}

fn devices(
    recording: &dyn Recording,
    report: &Report,
    main: Option<&LayerFindings>,
    names: &mut dyn Names,
) -> Vec<Device> {
    let figures = report.summary.devices.iter();
    let device = |of: &report::DeviceFigures| {
        let (layer, gauge, allocated_end, reserved) = match &of.tensors {
            Some(tensors) => (
                Layer::Tensor,
                tensors.tensors,
                tensors.allocated_end,
                (tensors.reserved_peak, tensors.reserved_end),
            ),
            None => (Layer::Device, of.requested, of.allocated.end, (0, 0)),
        };
        let peaks = main.map_or(&[][..], |layer| &layer.peaks);
        let peak = peaks.iter().find(|(peak, _)| {
            peak.focus.layer == layer
                && peak
                    .focus
                    .device
                    .filter(|device| *device != Event::NO_DEVICE)
                    == of.device
        });
        let held = peak.map_or(&[][..], |(_, peak)| &peak.holders);
        let held = held
            .iter()
            .map(|held| (held.stack, held.blocks, held.bytes));
        let holders = holders(held, names);
        let named = holders.iter().map(|holder| holder.bytes);
        let named = named.fold(0, u64::saturating_add);
        let gpu = of.device.and_then(|ordinal| recording.gpu(ordinal));
        Device {
            device: of.device,
            bytes: gpu.as_ref().map(|gpu| gpu.bytes),
            gpu: gpu.map(|Gpu { name, .. }| cut(&name)),
            of: layer_name(layer).to_string(),
            peak: gauge.peak,
            peak_ns: gauge.peak_ns.unwrap_or(0),
            end: gauge.end,
            allocated_end,
            reserved_peak: of.reserved.peak.max(reserved.0),
            reserved_end: of.reserved.end.max(reserved.1),
            others: gauge.peak.saturating_sub(named),
            holders,
        }
    };
    figures.map(device).collect()
}

/// Groups stacks by function, the ones with most bytes first.
fn holders(held: impl Iterator<Item = (u32, u64, u64)>, names: &mut dyn Names) -> Vec<Holder> {
    let mut rows: Vec<Holder> = Vec::new();
    for (stack, blocks, bytes) in held.take(NAMED) {
        let site = site(stack, names);
        match rows
            .iter_mut()
            .find(|row| row.site.function == site.function)
        {
            Some(row) => {
                row.blocks += blocks;
                row.bytes = row.bytes.saturating_add(bytes);
            }
            None => rows.push(Holder {
                bytes,
                blocks,
                site,
            }),
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    rows.truncate(HOLDERS);
    rows
}

/// Returns a stack as text.
pub(super) fn site(stack: u32, names: &mut dyn Names) -> Site {
    let frames = names.stack(stack);
    let function = blame(&frames).map(|symbol| cut(&line(symbol)));
    Site {
        stack,
        function: function.unwrap_or_default(),
        ..of_call_site(&CallSite::new(&frames))
    }
}

fn of_call_site(who: &CallSite) -> Site {
    let short = who.function.as_ref().map(Function::in_a_sentence);
    let from = |frame: &&Function| Some(*frame) != who.function.as_ref();
    let outward = who.frames.iter().skip_while(from);
    Site {
        stack: 0,
        function: short.clone().unwrap_or_default(),
        short: cut(&short.unwrap_or_default()),
        is_own: who.is_own,
        frames: outward
            .take(FRAMES)
            .map(|frame| cut(&frame.in_a_sentence()))
            .collect(),
    }
}

fn iterations(all: &loops::Iterations, growth: &Growth, names: &mut dyn Names) -> Iterations {
    let starts = &all.starts;
    let ns = |at: Option<&loops::Start>| at.map_or(0, |start| start.ns);
    let pairs = starts.iter().zip(starts.iter().skip(1));
    let mut lengths: Vec<u64> = pairs
        .map(|(from, to)| to.ns.saturating_sub(from.ns))
        .collect();
    lengths.sort_unstable();
    let keepers = growth
        .keepers
        .iter()
        .map(|keeper| (keeper.stack, keeper.blocks, keeper.bytes));
    let mut keepers = holders(keepers, names);
    keepers.truncate(KEEPERS);
    Iterations {
        count: all.count() as u64,
        sure: all.certainty.sure,
        from_ns: ns(starts.first()),
        to_ns: ns(starts.last()),
        median_ns: lengths.get(lengths.len() / 2).copied().unwrap_or(0),
        level: growth.levels.get(growth.steady_from).copied().unwrap_or(0),
        per_iteration: growth.per_iteration,
        grows: growth.grows,
        keepers,
    }
}

/// Returns the phases, if the program announced ranges.
fn phases_of(recording: &dyn Recording, layer: &LayerFindings) -> Vec<Phase> {
    let is_range = |kind: Kind| matches!(kind, Kind::RangePush | Kind::RangeStart);
    if !recording.events().any(|record| is_range(record.event.kind)) {
        return Vec::new();
    }
    let mut all = phases::Phase::all(recording, layer.focus, layer.iterations());
    all.truncate(PHASES);
    let phase = |phase: phases::Phase| Phase {
        name: cut(&phase.name),
        count: phase.count,
        ns: phase.ns,
        allocated: phase.allocated,
        kept: phase.kept,
        peak: phase.peak,
    };
    all.into_iter().map(phase).collect()
}

fn findings(report: &Report) -> Vec<Finding> {
    let all = report.findings.iter().take(FINDINGS);
    let finding = |one: &report::Finding| Finding {
        kind: one.kind.name().to_string(),
        of: one.of.to_string(),
        text: cut(&one.text),
        bytes: one.bytes,
        per_iteration: one.per_iteration,
        sure: one.sure,
        site: one.site.as_ref().map(of_call_site),
    };
    all.map(finding).collect()
}

/// Returns live and reserved bytes over the whole run, of the device with the highest peak.
fn over_time(recording: &dyn Recording, report: &Report, devices: &[Device]) -> OverTime {
    // The first device of several with the same peak.
    let main = devices.iter().rev().max_by_key(|device| device.peak);
    let timeline = recording.timeline();
    let mut all = timeline.devices.iter();
    let ordinal = main
        .and_then(|device| device.device)
        .unwrap_or(Event::NO_DEVICE);
    let Some(its) = all.find(|one| one.device == ordinal) else {
        return OverTime::default();
    };
    let end_ns = report.summary.last_ns;
    let kib = |series: Series| {
        let curve = curve("", its.get(series), end_ns, COLUMNS);
        let mut last = 0;
        let columns = curve.map(|curve| curve.columns).unwrap_or_default();
        let most = columns.into_iter().map(|column| {
            last = column.map_or(last, |(_, most)| most);
            last.div_ceil(1024)
        });
        most.collect::<Vec<u64>>()
    };
    // The framework's series are used where it announced its tensors.
    let or = |first: Series, second: Series| match kib(first) {
        none if none.is_empty() => kib(second),
        known => known,
    };
    OverTime {
        column_ns: (end_ns / COLUMNS as u64).saturating_add(1),
        live_kib: or(Series::Tensors, Series::Requested),
        reserved_kib: or(Series::TensorsReserved, Series::Reserved),
    }
}
