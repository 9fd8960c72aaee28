//! The tables of summaries: one of processes, and three of the lists in a summary.

use std::path::Path;

use parquet::data_type::ByteArray;

use super::columns::{Column, TableFile, Value::*, long, text};
use crate::error::Result;
use crate::fleet::RankSummary;
use crate::fleet::summary::{Device, Holder, Iterations, Phase};
use crate::top::State;

/// Writes a table's rows of a summary; `trace` is the value of the column of that name.
type Write = fn(&RankSummary, ByteArray, &Path) -> Result<()>;

/// All tables of summaries, by the names of their folders.
pub const TABLES: [(&str, Write); 4] = [
    ("summaries", processes),
    ("holders", holders),
    ("phases", phases),
    ("over_time", over_time),
];

/// Writes one row for each process.
fn processes(summary: &RankSummary, trace: ByteArray, path: &Path) -> Result<()> {
    let row = Process {
        json: serde_json::to_string(summary).unwrap_or_default(),
        summary: summary.clone(),
        trace,
    };
    put(path, SUMMARIES, &[row])
}

/// Writes a row for each function that held memory at the peak of a device.
fn holders(summary: &RankSummary, trace: ByteArray, path: &Path) -> Result<()> {
    let rows = summary.devices.iter().flat_map(|device| {
        let holders = device.holders.iter().zip(0..);
        holders.map(|(holder, place)| HolderRow {
            trace: trace.clone(),
            device: device.device,
            place,
            holder: holder.clone(),
        })
    });
    put(path, HOLDERS, &rows.collect::<Vec<_>>())
}

/// Writes one row for each phase of a process.
fn phases(summary: &RankSummary, trace: ByteArray, path: &Path) -> Result<()> {
    let rows = summary
        .phases
        .iter()
        .zip(0..)
        .map(|(phase, place)| PhaseRow {
            trace: trace.clone(),
            place,
            phase: phase.clone(),
        });
    put(path, PHASES, &rows.collect::<Vec<_>>())
}

/// Writes a row for each column of time.
fn over_time(summary: &RankSummary, trace: ByteArray, path: &Path) -> Result<()> {
    let of = &summary.over_time;
    let at = |kib: &[u64], place: usize| kib.get(place).map(|kib| kib * 1024);
    let rows = (0..of.live_kib.len().max(of.reserved_kib.len())).map(|place| Moment {
        trace: trace.clone(),
        place: place as i32,
        ns: of.column_ns.saturating_mul(place as u64),
        live: at(&of.live_kib, place),
        reserved: at(&of.reserved_kib, place),
    });
    put(path, OVER_TIME, &rows.collect::<Vec<_>>())
}

fn put<R>(path: &Path, columns: &'static [Column<R>], rows: &[R]) -> Result<()> {
    let mut file = TableFile::create(path, columns, None, Vec::new())?;
    if !rows.is_empty() {
        file.put(rows)?;
    }
    file.finish(path)
}

/// A process, for a row of a table.
pub struct Process {
    trace: ByteArray,
    summary: RankSummary,
    json: String,
}

impl Process {
    fn device(&self) -> Option<&Device> {
        self.summary.main_device()
    }

    fn iterations(&self) -> Option<&Iterations> {
        self.summary.iterations.as_ref()
    }
}

/// The columns of the table `summaries`. Figures of memory are of the device with the highest peak.
pub const SUMMARIES: &[Column<Process>] = &[
    Column("trace", Text(|of| Some(of.trace.clone()))),
    Column("file", Text(|of| text(&of.summary.trace))),
    Column(
        "pid",
        Int(|of| of.summary.process.pid.map(|pid| pid as i32)),
    ),
    Column(
        "world",
        Int(|of| of.summary.process.world.map(|world| world as i32)),
    ),
    Column(
        "started_wall_ns",
        Long(|of| Some(long(of.summary.process.started_wall_ns))),
    ),
    Column("last_ns", Long(|of| Some(long(of.summary.process.last_ns)))),
    Column("argv", Text(|of| text(&of.summary.process.argv))),
    Column("state", Text(|of| text(state(of.summary.end.state)))),
    Column("ended_by", Text(|of| text(of.summary.end.by.as_deref()?))),
    Column("events", Long(|of| Some(long(of.summary.events.recorded)))),
    Column(
        "events_readable",
        Long(|of| Some(long(of.summary.events.readable))),
    ),
    Column("events_lost", Long(|of| Some(long(of.summary.events.lost)))),
    Column("allocations", Long(|of| Some(long(of.summary.allocations)))),
    Column(
        "out_of_memory",
        Long(|of| Some(long(of.summary.out_of_memory))),
    ),
    Column("device", Int(|of| of.device()?.device.map(i32::from))),
    Column("gpu", Text(|of| text(of.device()?.gpu.as_deref()?))),
    Column("gpu_bytes", Long(|of| of.device()?.bytes.map(long))),
    Column("memory", Text(|of| text(&of.device()?.of))),
    Column("peak", Long(|of| Some(long(of.device()?.peak)))),
    Column("peak_ns", Long(|of| Some(long(of.device()?.peak_ns)))),
    Column("live_end", Long(|of| Some(long(of.device()?.end)))),
    Column(
        "allocated_end",
        Long(|of| Some(long(of.device()?.allocated_end))),
    ),
    Column(
        "reserved_peak",
        Long(|of| Some(long(of.device()?.reserved_peak))),
    ),
    Column(
        "reserved_end",
        Long(|of| Some(long(of.device()?.reserved_end))),
    ),
    Column("iterations", Long(|of| Some(long(of.iterations()?.count)))),
    Column(
        "iteration_ns",
        Long(|of| Some(long(of.iterations()?.median_ns))),
    ),
    Column(
        "per_iteration",
        Double(|of| Some(of.iterations()?.per_iteration)),
    ),
    Column("grows", Bool(|of| Some(of.iterations()?.grows))),
    Column("gpushim", Text(|of| text(&of.summary.gpushim))),
    Column("json", Text(|of| text(&of.json))),
];

fn state(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Ended => "ended",
        State::Died => "died",
        State::Unknown => "unknown",
    }
}

/// A function that held memory at the peak.
pub struct HolderRow {
    trace: ByteArray,
    device: Option<u8>,
    place: i32,
    holder: Holder,
}

/// The columns of the table `holders`.
pub const HOLDERS: &[Column<HolderRow>] = &[
    Column("trace", Text(|of| Some(of.trace.clone()))),
    Column("device", Int(|of| of.device.map(i32::from))),
    Column("place", Int(|of| Some(of.place))),
    Column("function", Text(|of| text(&of.holder.site.function))),
    Column("own_code", Bool(|of| Some(of.holder.site.is_own))),
    Column("bytes", Long(|of| Some(long(of.holder.bytes)))),
    Column("blocks", Long(|of| Some(long(of.holder.blocks)))),
];

/// A phase, for a row of a table.
pub struct PhaseRow {
    trace: ByteArray,
    place: i32,
    phase: Phase,
}

/// The columns of the table `phases`.
pub const PHASES: &[Column<PhaseRow>] = &[
    Column("trace", Text(|of| Some(of.trace.clone()))),
    Column("place", Int(|of| Some(of.place))),
    Column("phase", Text(|of| text(&of.phase.name))),
    Column("times", Long(|of| Some(long(of.phase.count)))),
    Column("ns", Long(|of| Some(long(of.phase.ns)))),
    Column("allocated", Long(|of| Some(long(of.phase.allocated)))),
    Column("kept", Long(|of| Some(long(of.phase.kept)))),
    Column("peak", Long(|of| Some(long(of.phase.peak)))),
];

/// A column of time, for a row of a table.
pub struct Moment {
    trace: ByteArray,
    place: i32,
    ns: u64,
    live: Option<u64>,
    reserved: Option<u64>,
}

/// The columns of the table `over_time`.
pub const OVER_TIME: &[Column<Moment>] = &[
    Column("trace", Text(|of| Some(of.trace.clone()))),
    Column("place", Int(|of| Some(of.place))),
    Column("ns", Long(|of| Some(long(of.ns)))),
    Column("live", Long(|of| of.live.map(long))),
    Column("reserved", Long(|of| of.reserved.map(long))),
];
