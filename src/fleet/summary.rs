//! Summary of a rank: a few KiB of JSON, attached to its trace.
//!
//! `docs/fleet.md` describes the fields. A reader accepts every summary of [`VERSION`]. It ignores
//! unknown fields, and takes missing fields as empty.

use serde::{Deserialize, Serialize};

use crate::top::{End, State};

/// Version of the file. It increases if a field is removed or changes its meaning, not if one is
/// added.
pub const VERSION: u32 = 1;

/// The summary of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RankSummary {
    /// The version of the file.
    pub gpushim_summary: u32,
    /// The version of the command that wrote it.
    pub gpushim: String,
    /// When it was written, ns since 1970.
    pub written_wall_ns: u64,
    /// The file name of the trace.
    pub trace: String,
    /// Name and version of the trace's format.
    pub format: String,
    /// The process.
    pub process: Process,
    /// State of the process, and how it ended.
    pub end: End,
    /// Events of the trace, and what of them is lost.
    pub events: Kept,
    /// The first few damaged or missing parts of the trace.
    pub problems: Vec<String>,
    /// The settings in force: variables of gpushim, versions, GPUs.
    pub settings: Vec<(String, String)>,
    /// Its devices.
    pub devices: Vec<Device>,
    /// Allocations of tensors, or where there are none of device memory.
    pub allocations: u64,
    /// Its iterations, if there are any.
    pub iterations: Option<Iterations>,
    /// Its phases, in the order in which they first began.
    pub phases: Vec<Phase>,
    /// Requests that could not be met.
    pub out_of_memory: u64,
    /// Findings, the most important first.
    pub findings: Vec<Finding>,
    /// The most that was live over time, of the device with the highest peak.
    pub over_time: OverTime,
}

/// A process and its place in the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Process {
    /// Its host.
    pub host: String,
    /// Its number on that host.
    pub pid: Option<u32>,
    /// Its rank, from the launcher.
    pub rank: Option<u32>,
    /// Number of ranks of the job, from the launcher.
    pub world: Option<u32>,
    /// The number or name of the job, from the launcher.
    pub job: Option<String>,
    /// Wall clock at the start, ns since 1970.
    pub started_wall_ns: u64,
    /// Time of the last event, ns since the start.
    pub last_ns: u64,
    /// The command line.
    pub argv: String,
}

/// Completeness of a trace's events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Kept {
    /// Recorded in the life of the process.
    pub recorded: u64,
    /// Still there.
    pub readable: u64,
    /// Overwritten or given up.
    pub lost: u64,
    /// True if the figures are of the newest events only.
    pub wrapped: bool,
}

/// Memory of one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Device {
    /// Its ordinal.
    pub device: Option<u8>,
    /// The name of the model.
    pub gpu: Option<String>,
    /// Its memory, bytes.
    pub bytes: Option<u64>,
    /// Memory that `peak` and `end` are of: `tensors` or `device memory`.
    pub of: String,
    /// The most that was live, bytes.
    pub peak: u64,
    /// When, ns since the start.
    pub peak_ns: u64,
    /// Live at the end, bytes.
    pub end: u64,
    /// Handed out by the framework, or else the pool, at the end, bytes.
    pub allocated_end: u64,
    /// The most that was held from the driver, bytes.
    pub reserved_peak: u64,
    /// Held from the driver at the end, bytes.
    pub reserved_end: u64,
    /// Who held the peak, by function, those with most bytes first.
    pub holders: Vec<Holder>,
    /// Bytes of the peak that others held.
    pub others: u64,
}

/// A function that held memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Holder {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// The call site.
    pub site: Site,
}

/// A stack as text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Site {
    /// Its number in the trace; of several that are one row, that with most bytes. 0 without a stack.
    pub stack: u32,
    /// The function that a user would change, with its place, as the column `site` of the Parquet
    /// export has it; empty without a stack.
    pub function: String,
    /// Short form for sentences: `copy train.py:12`.
    pub short: String,
    /// True for the user's own code.
    pub is_own: bool,
    /// The functions from there out to `main`, at most a few.
    pub frames: Vec<String>,
}

/// The iterations of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Iterations {
    /// How many.
    pub count: u64,
    /// True if they are certainly iterations.
    pub sure: bool,
    /// When the first and the last begin, ns since the start.
    pub from_ns: u64,
    /// When the last one ends, ns since the start.
    pub to_ns: u64,
    /// Median duration of one, ns.
    pub median_ns: u64,
    /// Bytes live at the beginning of the first one after the warm-up.
    pub level: u64,
    /// Bytes by which one raises what is live.
    pub per_iteration: f64,
    /// True if they leave memory behind.
    pub grows: bool,
    /// The stacks that keep the added bytes, those with most first; `bytes` is what they kept.
    pub keepers: Vec<Holder>,
}

/// A phase of the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Phase {
    /// Its name without numbers.
    pub name: String,
    /// Number of times it took place.
    pub count: u64,
    /// In all, ns.
    pub ns: u64,
    /// Bytes allocated in it.
    pub allocated: u64,
    /// Bytes of those that outlived it.
    pub kept: u64,
    /// The most that was live in it, bytes.
    pub peak: u64,
}

/// Findings of a process, as `gpushim report` has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Finding {
    /// Its kind: `growth`, `out-of-memory` …
    pub kind: String,
    /// Kind of memory: `tensors`, `pinned host memory` …
    pub of: String,
    /// It in sentences.
    pub text: String,
    /// Bytes that it is about.
    pub bytes: u64,
    /// Bytes for each iteration.
    pub per_iteration: Option<f64>,
    /// Whether it is certain.
    pub sure: bool,
    /// The call site that is responsible.
    pub site: Option<Site>,
}

/// Live and reserved bytes in columns of time of equal width.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct OverTime {
    /// Ns of a column; the first begins with the recording.
    pub column_ns: u64,
    /// The most that was live in each column, KiB; the value before it where nothing changed.
    pub live_kib: Vec<u64>,
    /// The most that was reserved in each column, KiB.
    pub reserved_kib: Vec<u64>,
}

impl RankSummary {
    /// Returns the device with the highest peak.
    pub fn main_device(&self) -> Option<&Device> {
        // The first device of several with the same peak.
        self.devices.iter().rev().max_by_key(|device| device.peak)
    }

    /// Highest peak of the devices, bytes.
    pub fn peak(&self) -> u64 {
        self.main_device().map_or(0, |device| device.peak)
    }

    /// True if the process has ended, so that its trace gets no more events.
    pub fn is_last(&self) -> bool {
        matches!(self.end.state, State::Ended | State::Died)
    }

    /// Wall clock at the last event, ns since 1970.
    pub fn last_wall_ns(&self) -> u64 {
        self.process
            .started_wall_ns
            .saturating_add(self.process.last_ns)
    }
}
