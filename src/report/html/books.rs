//! What was live when: from events to curves and blocks, in one pass.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::blocks::{Block, Blocks, LIVE};
use super::pack::Pack;
use super::series::{Curve, from_spans};
use super::stacks::Stacks;
use crate::analysis::Summary;
use crate::recording::Recording;
use crate::trace::{DeviceTimeline, Event, Kind, Layer, Record, Series, flags};

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

/// A recording among others, on a page of several: the view that is looked at first.
#[derive(Default, Serialize)]
pub struct Overview {
    layer: &'static str,
    device: Option<u8>,
    peak: u64,
    peak_ns: u64,
    end_ns: u64,
    /// The most in each of [`SPARK`] equal stretches.
    spark: Vec<u64>,
}

/// Stretches of a curve in an overview.
const SPARK: usize = 256;

/// A view, for the page.
#[derive(Serialize)]
struct PageView {
    layer: &'static str,
    device: Option<u8>,
    peak: u64,
    peak_ns: u64,
    end: u64,
    /// Its curves, by what they are of, each the number of two columns.
    curves: Vec<(&'static str, usize)>,
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
    pub fn from_before(
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

    /// Puts all of it into the payload.
    pub fn pack(
        mut self,
        recording: &dyn Recording,
        summary: &Summary,
        pack: &mut Pack,
    ) -> anyhow::Result<Overview> {
        for (_, live) in std::mem::take(&mut self.live) {
            self.blocks.give(live.block);
        }
        let timeline = recording.timeline();
        let is_whole = !recording.coverage().wrapped;
        let first_ns = summary.first_ns;
        let mut views: Vec<PageView> = Vec::new();
        for (layer, device) in &self.views {
            views.push(PageView {
                layer: layer_name(*layer),
                device: (*device != Event::NO_DEVICE).then_some(*device),
                peak: 0,
                peak_ns: 0,
                end: 0,
                curves: Vec::new(),
            });
        }
        let mut number = 0;
        let mut column = |pack: &mut Pack, buckets: &[(u64, u64)]| {
            pack.delta(
                &format!("curve{number}_min"),
                buckets.iter().map(|(least, _)| *least),
            );
            // How much more the most is.
            let more = buckets
                .iter()
                .map(|(least, most)| most.saturating_sub(*least));
            pack.plain(&format!("curve{number}_more"), more);
            number += 1;
            number - 1
        };
        let mut width_ns = 1;
        let (mut best, mut overview) = (None, Overview::default());
        for (of, curve) in self.curves {
            width_ns = curve.width_ns();
            let (peak, end) = (curve.peak(), curve.end());
            let spans = |device: u8, series: Series| {
                let known = timeline.devices.iter().find(|known| known.device == device);
                known.map_or(&[][..], |known: &DeviceTimeline| known.get(series))
            };
            let (name, of_device, before) = match of {
                Of::View(view) => {
                    let (layer, device) = self
                        .views
                        .get(usize::from(view))
                        .copied()
                        .unwrap_or((Layer::Device, 0));
                    let before = match layer {
                        Layer::Tensor => spans(device, Series::Tensors),
                        Layer::Device => spans(device, Series::Requested),
                        _ => &[],
                    };
                    ("live", None, before)
                }
                Of::Allocated(device) => {
                    ("allocated", Some(device), spans(device, Series::Allocated))
                }
                Of::Reserved(device) => ("reserved", Some(device), spans(device, Series::Reserved)),
                Of::FrameworkAllocated(device) => (
                    "framework allocated",
                    Some(device),
                    spans(device, Series::Tensors),
                ),
                Of::FrameworkReserved(device) => (
                    "framework reserved",
                    Some(device),
                    spans(device, Series::TensorsReserved),
                ),
            };
            let before = if is_whole { &[] } else { before };
            let buckets = curve.finish(first_ns, before);
            let at = column(pack, &buckets);
            if let Of::View(view) = of {
                let (layer, _) = self
                    .views
                    .get(usize::from(view))
                    .copied()
                    .unwrap_or((Layer::Device, 0));
                // Tensors before device memory before the rest, and then the larger.
                let rank = (std::cmp::Reverse(layer as u8), peak.0);
                if best.is_none_or(|best| rank > best) {
                    best = Some(rank);
                    let each = buckets.len().div_ceil(SPARK).max(1);
                    let most = |part: &[(u64, u64)]| part.iter().map(|(_, most)| *most).max();
                    overview = Overview {
                        layer: layer_name(layer),
                        device: self
                            .views
                            .get(usize::from(view))
                            .map(|(_, device)| *device)
                            .filter(|device| *device != Event::NO_DEVICE),
                        peak: peak.0,
                        peak_ns: peak.1,
                        end_ns: self.end_ns,
                        spark: buckets.chunks(each).filter_map(most).collect(),
                    };
                }
            }
            for (index, (page, (layer, device))) in views.iter_mut().zip(&self.views).enumerate() {
                let is_its = match of {
                    Of::View(view) => usize::from(view) == index,
                    Of::Allocated(_) => *layer == Layer::Device,
                    Of::Reserved(_) => matches!(layer, Layer::Device | Layer::Tensor),
                    Of::FrameworkAllocated(_) | Of::FrameworkReserved(_) => *layer == Layer::Tensor,
                };
                if !is_its || of_device.is_some_and(|of| of != *device) {
                    continue;
                }
                if of_device.is_none() {
                    (page.peak, page.peak_ns, page.end) = (peak.0, peak.1, end);
                }
                page.curves.push((name, at));
            }
        }
        for device in &timeline.devices {
            let spans = device.get(Series::Driver);
            if spans.is_empty() {
                continue;
            }
            let at = column(pack, &from_spans(self.end_ns, self.buckets, spans));
            let of_device = |view: &&mut PageView| {
                view.device == Some(device.device) && matches!(view.layer, "tensor" | "device")
            };
            for page in views.iter_mut().filter(of_device) {
                page.curves.push(("driver", at));
            }
        }
        pack.head("bucket_ns", &width_ns)?;
        pack.head("views", &views)?;
        self.blocks.pack(pack)?;
        Ok(overview)
    }
}

/// What a page calls a layer.
pub fn layer_name(layer: Layer) -> &'static str {
    match layer {
        Layer::Tensor => "tensor",
        Layer::Device => "device",
        Layer::Managed => "managed",
        Layer::Host => "host",
        Layer::Mapping => "mapping",
    }
}

fn plus(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn minus(bytes: u64) -> i64 {
    -plus(bytes)
}
