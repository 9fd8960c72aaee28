//! A running process: its memory now, its curve, and the stacks that hold it.
//!
//! All of it is read from the parts of its trace that are kept up to date.

use std::collections::BTreeMap;

use super::growth;
use crate::ledger::{Block, Held, by_stack};
use crate::recording::Recording;
use gpushim_trace::{Kind, Layer, Series, Trace};

/// The state of a process according to its trace. Bytes are of all devices together.
#[derive(Clone, Debug, PartialEq)]
pub struct Glance {
    /// The layer: a framework's tensors if there are any, else device memory.
    pub layer: Layer,
    /// Sum of live blocks, in bytes.
    pub allocated: u64,
    /// Bytes held from the driver.
    pub reserved: u64,
    /// The most that was live, of each device added up.
    pub peak: u64,
    /// Blocks allocated since the start.
    pub allocations: u64,
    /// Failed requests among the readable events.
    pub out_of_memory: u64,
    /// Bytes a minute by which the floor of live memory rises, or falls; `None` of a run too short
    /// to tell.
    pub growth: Option<f64>,
    /// The devices that it uses.
    pub devices: Vec<u8>,
    /// The most that was live in each of equal stretches of time, the newest last, bytes.
    pub history: Vec<u64>,
    /// The stacks that hold live memory, in descending order of bytes.
    pub holders: Vec<Held>,
}

impl Glance {
    /// Reads a trace, whose process may still run.
    pub fn of(trace: &Trace) -> Glance {
        let totals = trace.totals();
        let made = |layer| totals.map_or(0, |totals| totals.layer(layer).allocations);
        let layer = if made(Layer::Tensor) > 0 {
            Layer::Tensor
        } else {
            Layer::Device
        };
        let series = match layer {
            Layer::Tensor => Series::Tensors,
            _ => Series::Requested,
        };
        let (mut history, mut reserved, mut peak) = (BTreeMap::<u64, u64>::new(), 0_u64, 0_u64);
        let (mut growth, mut devices) = (None::<f64>, Vec::new());
        for device in trace.timeline().devices {
            let spans = device.get(series);
            if let Some(slope) = growth::per_minute(spans) {
                growth = Some(growth.unwrap_or(0.0) + slope);
            }
            for span in spans {
                let sum = history.entry(span.from_ns).or_default();
                *sum = sum.saturating_add(span.max);
            }
            let most = spans.iter().map(|span| span.max).max();
            peak = peak.saturating_add(most.unwrap_or(0));
            if most.is_some_and(|most| most > 0) {
                devices.push(device.device);
            }
            let held = device.get(Series::Reserved).last();
            reserved = reserved.saturating_add(held.map_or(0, |span| span.max));
        }
        let live = trace.live().map(|table| table.blocks).unwrap_or_default();
        let blocks = live.iter().filter(|one| one.event.class.layer() == layer);
        let blocks: Vec<Block> = blocks
            .map(|one| Block::new(one.ns, 0, &one.event))
            .collect();
        let allocated = blocks
            .iter()
            .fold(0_u64, |sum, block| sum.saturating_add(block.size));
        let is_shortage = |kind| matches!(kind, Kind::OutOfMemory | Kind::TensorOutOfMemory);
        let failed = Recording::events(trace).filter(|record| is_shortage(record.event.kind));
        Glance {
            layer,
            allocated,
            reserved,
            // The timeline may be a moment behind.
            peak: peak.max(allocated),
            allocations: made(layer),
            out_of_memory: failed.count() as u64,
            growth,
            devices,
            history: history.into_values().collect(),
            holders: by_stack(trace, &blocks),
        }
    }
}
