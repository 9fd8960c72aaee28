//! Figures of a recording, for one screen.

use serde::Serialize;

use crate::recording::Coverage;

/// Figures from the events of one trace.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Summary {
    /// Completeness of the record.
    pub events: Coverage,
    /// Time of the first readable event, ns since the start.
    pub first_ns: u64,
    /// Time of the last readable event, ns since the start.
    pub last_ns: u64,
    /// Counts by class of memory, only those that occur.
    pub classes: Vec<Classes>,
    /// Sources of the pool's and the driver's allocations.
    pub sources: Sources,
    /// Time spent in the driver for allocations, ns.
    pub allocation_driver_ns: u64,
    /// Time spent in the driver for frees, ns.
    pub free_driver_ns: u64,
    /// Figures by device.
    pub devices: Vec<DeviceFigures>,
    /// Requests that could not be met, the first hundred.
    pub out_of_memory: Vec<OutOfMemory>,
    /// Number of these requests.
    pub out_of_memory_count: u64,
    /// Bytes that the cache gave back to the driver by itself or to make room.
    pub trimmed_bytes: u64,
    /// Calls that failed for other reasons.
    pub failed: u64,
    /// Blocks whose address left the process.
    pub exported: u64,
    /// Stream captures.
    pub captures: u64,
    /// Contexts that were destroyed or reset.
    pub contexts_gone: u64,
    /// Events of kinds or classes that this version does not know.
    pub unknown: u64,
    /// Blocks that are older than the readable events and live at the end; `None` if the recording keeps no
    /// list of what is live. Its size is 0.
    pub older: Option<SizeGroup>,
    /// Bytes of destroyed contexts whose blocks could not be distinguished from those of other contexts.
    pub ambiguous_bytes: u64,
}

/// Counts of one class of memory.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Classes {
    /// Its name.
    pub class: &'static str,
    /// Allocations.
    pub allocations: u64,
    /// Frees.
    pub frees: u64,
    /// Bytes asked for, in sum.
    pub bytes: u64,
    /// Blocks live at the end.
    pub live: u64,
    /// Bytes asked for of those.
    pub live_bytes: u64,
}

/// Counts of allocations by source.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sources {
    /// A block whose work was complete.
    pub hit: u64,
    /// A block ordered after its work on the device.
    pub ordered: u64,
    /// A block whose work the host waited for.
    pub waited: u64,
    /// New memory from the driver, through the pool.
    pub grown: u64,
    /// The driver, directly.
    pub forwarded: u64,
}

impl Sources {
    /// Number of allocations from all sources.
    pub fn total(&self) -> u64 {
        self.hit + self.ordered + self.waited + self.grown + self.forwarded
    }

    /// Share of the pool's allocations that needed no new memory, 0 to 1; `None` without any.
    pub fn hit_rate(&self) -> Option<f64> {
        let pooled = self.hit + self.ordered + self.waited + self.grown;
        (pooled > 0).then(|| (pooled - self.grown) as f64 / pooled as f64)
    }
}

/// A quantity's highest and last value, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Gauge {
    /// Highest.
    pub peak: u64,
    /// When, ns since the start; `None` if it never rose.
    pub peak_ns: Option<u64>,
    /// After the last event.
    pub end: u64,
}

/// Figures of one device.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceFigures {
    /// Its ordinal; `None` for events that name no device.
    pub device: Option<u8>,
    /// Asked for by the program or a framework.
    pub requested: Gauge,
    /// Handed out, rounded to blocks.
    pub allocated: Gauge,
    /// Held from the driver; at least what is allocated.
    pub reserved: Gauge,
    /// Reserved and not handed out when most was handed out, bytes; `None` if the ring has wrapped:
    /// segments from before are not known.
    pub unused: Option<u64>,
    /// Bytes that were reserved then.
    pub reserved_then: u64,
    /// Time of that moment, ns since the start.
    pub then_ns: u64,
    /// In use on the device by all processes, as the driver said; `None` if it did not.
    pub in_use: Option<Gauge>,
    /// Peak requested / peak reserved; `None` if nothing was reserved, or if the ring has wrapped
    /// and the peaks are not those of the run.
    pub utilization: Option<f64>,
    /// The framework's tensors, if one announced them.
    pub tensors: Option<TensorFigures>,
    /// Live blocks at the peak of requested memory: the largest groups of equal size.
    pub top_at_peak: Vec<SizeGroup>,
    /// Live blocks at the end, likewise.
    pub top_at_end: Vec<SizeGroup>,
}

/// Figures of a framework's tensors.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TensorFigures {
    /// Sum of the live tensors.
    pub tensors: Gauge,
    /// Highest that the framework said it had handed out.
    pub allocated_peak: u64,
    /// Highest that the framework said it held.
    pub reserved_peak: u64,
    /// Bytes that it held and had not handed out when it had handed out most.
    pub unused: u64,
    /// Bytes that it held then.
    pub reserved_then: u64,
    /// Time of that moment, ns since the start.
    pub then_ns: u64,
    /// What it said last.
    pub allocated_end: u64,
    /// Bytes held after the last event.
    pub reserved_end: u64,
    /// Tensors live at their peak, the largest groups of equal size.
    pub top_at_peak: Vec<SizeGroup>,
    /// Tensors live at the end, likewise.
    pub top_at_end: Vec<SizeGroup>,
}

/// Live blocks of the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SizeGroup {
    /// Bytes of each.
    pub size: u64,
    /// How many.
    pub count: u64,
    /// Bytes together.
    pub bytes: u64,
}

/// A request that could not be met.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OutOfMemory {
    /// Ns since the start.
    pub ns: u64,
    /// Device ordinal.
    pub device: Option<u8>,
    /// The source: `driver` or `framework`.
    pub by: &'static str,
    /// Bytes asked for.
    pub size: u64,
    /// Free and total bytes of the device; for a framework, its allocated and reserved bytes.
    pub state: [u64; 2],
}
