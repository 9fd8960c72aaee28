//! What was live when: from events to curves and blocks, in one pass.

use rustc_hash::FxHashMap;

use super::blocks::{Block, Blocks, LIVE};
use super::series::Curve;
use super::stacks::Stacks;
use crate::recording::Recording;
use crate::report::Summary;
use gpushim_trace::{Event, Kind, Layer, Record, flags};

mod views;

pub use views::Overview;
#[cfg(test)]
pub use views::layer_name;

/// What a curve is of; the number is that of the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Of {
    /// Live blocks of a view, as asked for; the number is that of the view.
    View(u8),
    /// Handed out, rounded to blocks.
    Allocated(u8),
    /// Held from the driver.
    Reserved(u8),
    /// What a framework says that it has handed out.
    FrameworkAllocated(u8),
    /// What a framework says that it holds.
    FrameworkReserved(u8),
}

/// A block that is live.
struct Live {
    block: Block,
    /// Its bytes, rounded.
    rounded: u64,
    device: u8,
    forwarded: bool,
}

/// Devices that are told apart: each takes megabytes of curves, and a damaged file may name 255.
const DEVICES_MOST: u8 = 32;

/// The books of a recording.
pub struct Books {
    end_ns: u64,
    buckets: usize,
    /// The device of events that name none, if there is but one.
    only: Option<u8>,
    /// One sort of memory on one device each: what a page shows at a time.
    views: Vec<(Layer, u8)>,
    curves: Vec<(Of, Curve)>,
    live: FxHashMap<(Layer, u64), Live>,
    segments: FxHashMap<u64, (u8, u64)>,
    blocks: Blocks,
    peaks: Vec<((Layer, u8), u64)>,
}

impl Books {
    /// Of a run whose figures are known: curves of so many stretches, and so many blocks exactly.
    pub fn new(summary: &Summary, buckets: usize, blocks: usize) -> Books {
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
        Books {
            end_ns,
            buckets,
            only,
            views: Vec::new(),
            curves: Vec::new(),
            live: FxHashMap::default(),
            segments: FxHashMap::default(),
            blocks: Blocks::new(end_ns, blocks),
            peaks,
        }
    }

    /// Takes an event in.
    pub fn feed(&mut self, record: &Record, stacks: &mut Stacks<'_>) {
        let event = &record.event;
        let device = self.device_of(event);
        match event.kind {
            Kind::Alloc | Kind::TensorAlloc if event.result == 0 => {
                let stack = match event.class.layer() {
                    Layer::Mapping => return,
                    _ => stacks.stack(event.stack, event.class, event.size),
                };
                self.allocated(record, stack);
            }
            Kind::Free | Kind::TensorFree if event.result == 0 => self.freed(record, stacks),
            Kind::Reserve => {
                let segment = (device, event.size);
                if let Some((device, bytes)) = self.segments.insert(event.address, segment) {
                    self.add(Of::Reserved(device), record.ns, minus(bytes));
                }
                self.add(Of::Reserved(device), record.ns, plus(event.size));
            }
            Kind::Release => match self.segments.remove(&event.address) {
                Some((device, bytes)) => self.add(Of::Reserved(device), record.ns, minus(bytes)),
                None => self
                    .curve(Of::Reserved(device))
                    .remove_unseen(record.ns, plus(event.size)),
            },
            Kind::ContextGone => self.context_gone(record, device),
            _ => {}
        }
        if matches!(event.kind, Kind::TensorAlloc | Kind::TensorFree) {
            let [allocated, reserved] = event.extra.map(plus);
            let ns = record.ns;
            self.curve(Of::FrameworkAllocated(device))
                .set(ns, allocated);
            self.curve(Of::FrameworkReserved(device)).set(ns, reserved);
        }
    }

    fn allocated(&mut self, record: &Record, stack: u32) {
        let event = &record.event;
        let layer = event.class.layer();
        let live = self.live_of(event, record.ns, stack);
        let (view, size, rounded) = (live.block.view, live.block.size, live.rounded);
        let (device, forwarded) = (live.device, live.forwarded);
        // An address handed out twice was freed in between, by an event that is lost.
        if let Some(before) = self.live.insert((layer, event.address), live) {
            self.gone(layer, before, record.ns);
        }
        self.add(Of::View(view), record.ns, plus(size));
        if layer == Layer::Device {
            self.add(Of::Allocated(device), record.ns, plus(rounded));
            if forwarded {
                self.add(Of::Reserved(device), record.ns, plus(rounded));
            }
        }
    }

    fn freed(&mut self, record: &Record, stacks: &mut Stacks<'_>) {
        let event = &record.event;
        let layer = event.class.layer();
        if layer == Layer::Mapping {
            return;
        }
        if let Some(live) = self.live.remove(&(layer, event.address)) {
            self.gone(layer, live, record.ns);
            return;
        }
        // It was there before the first event; who made it is not known.
        let live = self.live_of(event, 0, stacks.unseen());
        let ns = record.ns;
        self.curve(Of::View(live.block.view))
            .remove_unseen(ns, plus(live.block.size));
        if layer == Layer::Device {
            let rounded = plus(live.rounded);
            self.curve(Of::Allocated(live.device))
                .remove_unseen(ns, rounded);
            if live.forwarded {
                self.curve(Of::Reserved(live.device))
                    .remove_unseen(ns, rounded);
            }
        }
        self.blocks.give(Block {
            to: ns,
            ..live.block
        });
    }

    /// A block that was known goes.
    fn gone(&mut self, layer: Layer, live: Live, ns: u64) {
        self.add(Of::View(live.block.view), ns, minus(live.block.size));
        if layer == Layer::Device {
            self.add(Of::Allocated(live.device), ns, minus(live.rounded));
            if live.forwarded {
                self.add(Of::Reserved(live.device), ns, minus(live.rounded));
            }
        }
        self.blocks.give(Block {
            to: ns,
            ..live.block
        });
    }

    /// A context's memory is gone without a free. As the report has it: if the device has no more than
    /// what the context had, all of it goes; otherwise only the sums.
    fn context_gone(&mut self, record: &Record, device: u8) {
        let (event, ns) = (&record.event, record.ns);
        if device == Event::NO_DEVICE && event.size > 0 {
            return;
        }
        let is_its = |layer: Layer, live: &Live| layer == Layer::Device && live.device == device;
        let pooled = |((layer, _), live): (&(Layer, u64), &Live)| {
            (is_its(*layer, live) && !live.forwarded).then_some(live.rounded)
        };
        let of_pool = self.live.iter().filter_map(pooled);
        let of_pool = of_pool.fold(0, u64::saturating_add);
        let view = self.view(Layer::Device, device);
        if of_pool > event.size {
            self.add(Of::View(view), ns, minus(event.size));
            self.add(Of::Allocated(device), ns, minus(event.size));
            self.add(Of::Reserved(device), ns, minus(event.extra[0]));
            return;
        }
        let blocks = &mut self.blocks;
        self.live.retain(|(layer, _), live| {
            let goes = is_its(*layer, live);
            if goes {
                blocks.give(Block {
                    to: ns,
                    ..live.block
                });
            }
            !goes
        });
        self.segments.retain(|_, (of, _)| *of != device);
        for of in [Of::View(view), Of::Allocated(device), Of::Reserved(device)] {
            self.curve(of).drop_all(ns);
        }
    }

    /// Blocks that the live table still has, of which the events no longer tell.
    pub fn add_earlier(
        &mut self,
        recording: &dyn Recording,
        first_ns: u64,
        stacks: &mut Stacks<'_>,
    ) {
        for found in recording.live().unwrap_or_default() {
            let event = &found.event;
            let layer = event.class.layer();
            let is_known = self.live.contains_key(&(layer, event.address));
            if layer == Layer::Mapping || found.ns >= first_ns || is_known {
                continue;
            }
            let stack = stacks.stack(event.stack, event.class, event.size);
            let live = self.live_of(event, found.ns, stack);
            self.curve(Of::View(live.block.view))
                .was_there(plus(event.size));
            if layer == Layer::Device {
                let rounded = plus(live.rounded);
                self.curve(Of::Allocated(live.device)).was_there(rounded);
                if live.forwarded {
                    self.curve(Of::Reserved(live.device)).was_there(rounded);
                }
            }
            self.live.insert((layer, event.address), live);
        }
    }

    fn live_of(&mut self, event: &Event, from: u64, stack: u32) -> Live {
        let layer = event.class.layer();
        let device = self.device_of(event);
        Live {
            block: Block {
                from,
                to: LIVE,
                address: event.address,
                size: event.size,
                stack,
                view: self.view(layer, device),
            },
            // The words of a tensor's event are the framework's, not a cost.
            rounded: match layer {
                Layer::Tensor => event.size,
                _ => event.cost().block.max(event.size),
            },
            device,
            forwarded: event.flags & flags::FORWARDED != 0,
        }
    }

    fn device_of(&self, event: &Event) -> u8 {
        match (event.device, self.only) {
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
        // 4 layers of 256 devices: those that no machine has share the last number.
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        if known.is_none() {
            let peak = self.peaks.iter().find(|(of, _)| *of == view);
            if let Some((_, ns)) = peak {
                self.blocks.pin(number, *ns);
            }
        }
        number
    }

    fn add(&mut self, of: Of, ns: u64, bytes: i64) {
        self.curve(of).add(ns, bytes);
    }

    fn curve(&mut self, of: Of) -> &mut Curve {
        let known = self.curves.iter().position(|(other, _)| *other == of);
        let at = known.unwrap_or_else(|| {
            self.curves
                .push((of, Curve::new(self.end_ns, self.buckets)));
            self.curves.len() - 1
        });
        &mut self.curves[at].1
    }
}

fn plus(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn minus(bytes: u64) -> i64 {
    -plus(bytes)
}
