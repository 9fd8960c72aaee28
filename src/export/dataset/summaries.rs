//! The tables of summaries: one of processes, and three of the lists in a summary.

use std::path::Path;

use parquet::data_type::ByteArray;

use super::columns::{Column, TableFile, Value::*, long, text};
use crate::error::Result;
use crate::fleet::RankSummary;
use crate::fleet::summary::{Device, Holder, Iterations, Phase};
use crate::top::State;

/// One of the tables of summaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// One row for each process.
    Summaries,
    /// A row for each function that held memory at the peak of a device.
    Holders,
    /// One row for each phase of a process.
    Phases,
    /// A row for each column of time.
    OverTime,
}

/// All tables of summaries.
pub const TABLES: [Table; 4] = [
    Table::Summaries,
    Table::Holders,
    Table::Phases,
    Table::OverTime,
];

impl Table {
    /// Name of the table's folder.
    pub fn name(self) -> &'static str {
        match self {
            Table::Summaries => "summaries",
            Table::Holders => "holders",
            Table::Phases => "phases",
            Table::OverTime => "over_time",
        }
    }

    /// Writes the table's rows of a summary.
    pub fn write(self, summary: &RankSummary, trace: &str, path: &Path) -> Result<()> {
        let trace = ByteArray::from(trace.as_bytes().to_vec());
        match self {
            Table::Summaries => {
                let row = Process {
                    json: serde_json::to_string(summary).unwrap_or_default(),
                    summary: summary.clone(),
                    trace,
                };
                put(path, SUMMARIES, &[row])
            }
            Table::Holders => {
                let devices = summary.devices.iter();
                let rows = devices.flat_map(|device| {
                    let holders = device.holders.iter().zip(0..);
                    holders.map(|(holder, place)| (device.device, place, holder.clone()))
                });
                let rows: Vec<HolderRow> = rows
                    .map(|(device, place, holder)| HolderRow {
                        trace: trace.clone(),
                        device,
                        place,
                        holder,
                    })
                    .collect();
                put(path, HOLDERS, &rows)
            }
            Table::Phases => {
                let rows: Vec<PhaseRow> = (summary.phases.iter().zip(0..))
                    .map(|(phase, place)| PhaseRow {
                        trace: trace.clone(),
                        place,
                        phase: phase.clone(),
                    })
                    .collect();
                put(path, PHASES, &rows)
            }
            Table::OverTime => {
                let of = &summary.over_time;
                let at = |kib: &[u64], place: usize| kib.get(place).map(|kib| kib * 1024);
                let rows: Vec<Moment> = (0..of.live_kib.len().max(of.reserved_kib.len()))
                    .map(|place| Moment {
                        trace: trace.clone(),
                        place: place as i32,
                        ns: of.column_ns.saturating_mul(place as u64),
                        live: at(&of.live_kib, place),
                        reserved: at(&of.reserved_kib, place),
                    })
                    .collect();
                put(path, OVER_TIME, &rows)
            }
        }
    }
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

/// The columns of [`Table::Summaries`]. Figures of memory are of the device with the highest peak.
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

/// The columns of [`Table::Holders`].
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

/// The columns of [`Table::Phases`].
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

/// The columns of [`Table::OverTime`].
pub const OVER_TIME: &[Column<Moment>] = &[
    Column("trace", Text(|of| Some(of.trace.clone()))),
    Column("place", Int(|of| Some(of.place))),
    Column("ns", Long(|of| Some(long(of.ns)))),
    Column("live", Long(|of| of.live.map(long))),
    Column("reserved", Long(|of| of.reserved.map(long))),
];
