//! Live memory over time: from events to curves and blocks, in one pass.

use super::blocks::{Block, Blocks, LIVE};
use super::series::Curve;
use super::stacks::Stacks;
use crate::ledger::{self, Change, Ledger, Step, Sum};
use crate::recording::Recording;
use crate::report::Summary;
use gpushim_trace::{Event, Layer, Record};

mod views;

pub use views::Overview;
#[cfg(test)]
pub use views::layer_name;

/// The most devices: each takes megabytes of curves, and a damaged file may name 255.
const DEVICES_MOST: u8 = 32;

/// Live memory over time, of one recording, for a page.
pub struct MemoryHistory {
    end_ns: u64,
    buckets: usize,
    /// The device of events that name none, if there is but one.
    only: Option<u8>,
    /// Sorts of memory, each on one device. A page shows one at a time.
    views: Vec<(Layer, u8)>,
    /// Curves by device and sum.
    curves: Vec<((u8, Sum), Curve)>,
    ledger: Ledger,
    blocks: Blocks,
    peaks: Vec<((Layer, u8), u64)>,
}

impl MemoryHistory {
    /// Begins for a run with these figures: curves of `buckets` intervals, and at most `blocks`
    /// blocks exactly.
    pub fn new(summary: &Summary, buckets: usize, blocks: usize) -> MemoryHistory {
        let mut named = summary.devices.iter().filter_map(|device| device.device);
        let only = named.next().filter(|_| named.next().is_none());
        let end_ns = summary.last_ns;
        let mut peaks = Vec::new();
        for figures in &summary.devices {
            let device = figures.device.unwrap_or(Event::NO_DEVICE);
            let tensors = figures.tensors.as_ref().and_then(|own| own.tensors.peak_ns);
            let requested = figures.requested.peak_ns;
            for (layer, at) in [(Layer::Tensor, tensors), (Layer::Device, requested)] {
                peaks.extend(at.map(|ns| ((layer, device), ns)));
            }
        }
        MemoryHistory {
            end_ns,
            buckets,
            only,
            views: Vec::new(),
            curves: Vec::new(),
            ledger: Ledger::new(only),
            blocks: Blocks::new(end_ns, blocks),
            peaks,
        }
    }

    /// Adds the blocks of the live table whose events are lost. To be called before any event.
    pub fn begin(&mut self, recording: &dyn Recording, first_ns: u64) {
        let mut older = recording.live().unwrap_or_default();
        older.retain(|one| one.ns < first_ns);
        self.apply(0, |ledger, say| ledger.begin(&older, say), |_, _| {});
    }

    /// Applies the next event to the state.
    pub fn feed(&mut self, record: &Record, stacks: &mut Stacks<'_>) {
        self.apply(
            record.ns,
            |ledger, say| ledger.apply(record, say),
            |history, change| match change {
                Change::Allocated(block) if is_shown(block) => {
                    // Stacks are numbered in the order of allocations.
                    stack_of(block, stacks);
                }
                Change::Freed(block) if is_shown(block) => history.ended(block, record.ns, stacks),
                Change::FreedUnseen(block) if is_shown(block) => {
                    let stack = stacks.unseen();
                    history.give(block, stack, record.ns);
                }
                _ => {}
            },
        );
    }

    fn apply(
        &mut self,
        ns: u64,
        act: impl FnOnce(&mut Ledger, &mut dyn FnMut(&Change)),
        mut see: impl FnMut(&mut MemoryHistory, &Change),
    ) {
        let mut ledger = std::mem::take(&mut self.ledger);
        act(&mut ledger, &mut |change| {
            see(self, change);
            change.steps(|device, sum, step, bytes| {
                // Memory of mappings is counted elsewhere. The driver's figures come from the
                // timeline.
                if matches!(sum, Sum::Live(Layer::Mapping) | Sum::InUse) {
                    return;
                }
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                let curve = self.curve(device, sum);
                match step {
                    Step::WasThere => curve.was_there(bytes),
                    Step::Rise => curve.add(ns, bytes),
                    Step::Fall => curve.add(ns, -bytes),
                    Step::FallUnseen => curve.remove_unseen(ns, bytes),
                    Step::Set => curve.set(ns, bytes),
                }
            });
        });
        self.ledger = ledger;
    }

    /// After the last event: adds the blocks that are live then.
    pub fn finish(&mut self, stacks: &mut Stacks<'_>) {
        let ledger = std::mem::take(&mut self.ledger);
        for block in ledger.all_live().filter(|block| is_shown(block)) {
            self.ended(block, LIVE, stacks);
        }
    }

    fn ended(&mut self, block: &ledger::Block, to: u64, stacks: &mut Stacks<'_>) {
        let stack = stack_of(block, stacks);
        self.give(block, stack, to);
    }

    fn give(&mut self, block: &ledger::Block, stack: u32, to: u64) {
        let device = self.device_of(block.device);
        let view = self.view(block.class.layer(), device);
        self.blocks.give(Block {
            from: block.ns,
            to,
            address: block.address,
            size: block.size,
            stack,
            view,
        });
    }

    fn device_of(&self, device: u8) -> u8 {
        match (device, self.only) {
            (Event::NO_DEVICE, Some(only)) => only,
            (DEVICES_MOST.., _) => Event::NO_DEVICE,
            (device, _) => device,
        }
    }

    fn view(&mut self, layer: Layer, device: u8) -> u8 {
        let view = (layer, device);
        let known = self.views.iter().position(|other| *other == view);
        let number = known.unwrap_or_else(|| {
            self.views.push(view);
            self.views.len() - 1
        });
        // 4 layers of 256 devices: all numbers beyond share the last one.
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        if known.is_none() {
            let peak = self.peaks.iter().find(|(of, _)| *of == view);
            if let Some((_, ns)) = peak {
                self.blocks.pin(number, *ns);
            }
        }
        number
    }

    fn curve(&mut self, device: u8, sum: Sum) -> &mut Curve {
        let of = (self.device_of(device), sum);
        let known = self.curves.iter().position(|(other, _)| *other == of);
        let at = known.unwrap_or_else(|| {
            if let Sum::Live(layer) = sum {
                self.view(layer, of.0);
            }
            self.curves
                .push((of, Curve::new(self.end_ns, self.buckets)));
            self.curves.len() - 1
        });
        &mut self.curves[at].1
    }
}

/// The page's stack of a block.
fn stack_of(block: &ledger::Block, stacks: &mut Stacks<'_>) -> u32 {
    match block.stack {
        0 if block.earlier => stacks.unseen(),
        _ => stacks.of_block(block),
    }
}

/// True if a page shows the block. Memory of mappings is shown elsewhere.
fn is_shown(block: &ledger::Block) -> bool {
    block.class.layer() != Layer::Mapping
}

/// Device, name, peak and end of each curve that the report has, too.
#[cfg(test)]
pub(crate) fn curves(recording: &dyn Recording) -> Vec<(u8, &'static str, u64, u64)> {
    let summary = crate::report::summarize(recording);
    let (mut history, mut stacks) = (
        MemoryHistory::new(&summary, 100, 100),
        Stacks::new(recording.names(), recording.owners()),
    );
    history.begin(recording, summary.first_ns);
    for record in recording.events() {
        history.feed(&record, &mut stacks);
    }
    let named = history.curves.iter().filter_map(|((device, sum), curve)| {
        let name = match sum {
            Sum::Live(Layer::Device) => "requested",
            Sum::Live(Layer::Tensor) => "tensors",
            Sum::Allocated => "allocated",
            Sum::Reserved => "reserved",
            _ => return None,
        };
        Some((*device, name, curve.peak().0, curve.end()))
    });
    named.collect()
}
