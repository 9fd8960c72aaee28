//! From the events of a trace to its figures.

use rustc_hash::FxHashMap;

use super::account::{Account, Device, Level};
use super::figures::{
    Classes, DeviceFigures, Gauge, OutOfMemory, SizeGroup, Sources, Summary, TensorFigures,
};
use crate::recording::Recording;
use crate::trace::{Class, Event, Kind, Layer, Record, flags};

/// How many size groups and out-of-memory events are kept.
const TOP: usize = 8;
const OUT_OF_MEMORY_MAX: usize = 100;

/// Goes through a trace twice: for the figures, and for what was live at the peaks found. A third
/// time where the only device has to be found out first, for events that name none.
pub fn summarize(trace: &dyn Recording) -> Summary {
    let mut account = Account::default();
    let mut counts = Counts::default();
    for record in trace.events() {
        counts.feed(&record);
        account.feed(&record);
    }
    let only = account.misses_device();
    if only.is_some() {
        account = Account::of_only(only);
        trace.events().for_each(|record| account.feed(&record));
    }
    let peaks = peaks(&account);
    let tops = tops_at(trace, Account::of_only(only), &peaks);
    let mut ordinals: Vec<u8> = account.devices.keys().copied().collect();
    ordinals.sort_unstable();
    let devices = ordinals.into_iter().filter_map(|ordinal| {
        let device = account.devices.get(&ordinal)?;
        let mut figures = figures(ordinal, device, trace.coverage().wrapped);
        let top = |layer| tops.get(&(ordinal, layer)).cloned().unwrap_or_default();
        figures.top_at_peak = top(Layer::Device);
        figures.top_at_end = groups(&account, ordinal, Layer::Device);
        if let Some(tensors) = &mut figures.tensors {
            tensors.top_at_peak = top(Layer::Tensor);
            tensors.top_at_end = groups(&account, ordinal, Layer::Tensor);
        }
        Some(figures)
    });
    let devices = devices.collect();
    counts.into_summary(trace, &account, devices)
}

/// Sums that need no books.
#[derive(Default)]
struct Counts {
    first_ns: Option<u64>,
    last_ns: u64,
    classes: FxHashMap<Class, (u64, u64, u64)>,
    sources: Sources,
    allocation_driver_ns: u64,
    free_driver_ns: u64,
    out_of_memory: Vec<OutOfMemory>,
    out_of_memory_count: u64,
    trimmed_bytes: u64,
    failed: u64,
    exported: u64,
    imported: u64,
    captures: u64,
    contexts_gone: u64,
    unknown: u64,
}

impl Counts {
    fn feed(&mut self, record: &Record) {
        let event = &record.event;
        self.first_ns = Some(
            self.first_ns
                .map_or(record.ns, |first| first.min(record.ns)),
        );
        self.last_ns = self.last_ns.max(record.ns);
        if event.class == Class::Unknown || event.kind == Kind::Unknown {
            self.unknown += 1;
        }
        match event.kind {
            Kind::Alloc | Kind::TensorAlloc => self.allocation(event),
            Kind::Free | Kind::TensorFree => {
                self.classes.entry(event.class).or_default().1 += 1;
                if event.kind == Kind::Free {
                    let ns = u64::from(event.cost().driver_ns);
                    self.free_driver_ns = self.free_driver_ns.saturating_add(ns);
                }
            }
            Kind::OutOfMemory | Kind::TensorOutOfMemory => {
                self.out_of_memory_count += 1;
                if self.out_of_memory.len() < OUT_OF_MEMORY_MAX {
                    let by = if event.kind == Kind::OutOfMemory {
                        "driver"
                    } else {
                        "framework"
                    };
                    let device = named(event.device);
                    let oom = OutOfMemory {
                        ns: record.ns,
                        device,
                        by,
                        size: event.size,
                        state: event.extra,
                    };
                    self.out_of_memory.push(oom);
                }
            }
            Kind::Trim => self.trimmed_bytes = self.trimmed_bytes.saturating_add(event.size),
            Kind::Failed => self.failed += 1,
            Kind::Export => self.exported += 1,
            Kind::Import => self.imported += 1,
            Kind::CaptureBegin => self.captures += 1,
            Kind::ContextGone => self.contexts_gone += 1,
            Kind::Reserve
            | Kind::Release
            | Kind::ContextNew
            | Kind::CaptureEnd
            | Kind::RangePush
            | Kind::RangePop
            | Kind::RangeStart
            | Kind::RangeEnd
            | Kind::Mark
            | Kind::ThreadName
            | Kind::DeviceMemory
            | Kind::PoolState
            | Kind::ModuleLoad
            | Kind::Unknown => {}
        }
    }

    fn allocation(&mut self, event: &Event) {
        if event.result != 0 {
            self.failed += 1;
            return;
        }
        let class = self.classes.entry(event.class).or_default();
        class.0 += 1;
        class.2 = class.2.saturating_add(event.size);
        if event.kind == Kind::TensorAlloc {
            return;
        }
        let ns = u64::from(event.cost().driver_ns);
        self.allocation_driver_ns = self.allocation_driver_ns.saturating_add(ns);
        let sources = &mut self.sources;
        for (flag, count) in [
            (flags::HIT, &mut sources.hit),
            (flags::ORDERED, &mut sources.ordered),
            (flags::WAITED, &mut sources.waited),
            (flags::GROWN, &mut sources.grown),
            (flags::FORWARDED, &mut sources.forwarded),
        ] {
            if event.flags & flag != 0 {
                *count += 1;
                break;
            }
        }
    }

    fn into_summary(
        self,
        trace: &dyn Recording,
        account: &Account,
        devices: Vec<DeviceFigures>,
    ) -> Summary {
        let mut classes: Vec<_> = self.classes.into_iter().collect();
        classes.sort_unstable_by_key(|(class, _)| *class);
        let classes = classes
            .into_iter()
            .map(|(class, (allocations, frees, bytes))| {
                let (live, live_bytes) = account.live_of(class);
                Classes {
                    class: class.name(),
                    allocations,
                    frees,
                    bytes,
                    live,
                    live_bytes,
                }
            });
        Summary {
            events: trace.coverage(),
            first_ns: self.first_ns.unwrap_or(0),
            last_ns: self.last_ns,
            classes: classes.collect(),
            sources: self.sources,
            allocation_driver_ns: self.allocation_driver_ns,
            free_driver_ns: self.free_driver_ns,
            devices,
            out_of_memory: self.out_of_memory,
            out_of_memory_count: self.out_of_memory_count,
            trimmed_bytes: self.trimmed_bytes,
            failed: self.failed,
            exported: self.exported,
            imported: self.imported,
            captures: self.captures,
            contexts_gone: self.contexts_gone,
            unknown: self.unknown,
            ambiguous_bytes: account.ambiguous,
        }
    }
}

fn named(device: u8) -> Option<u8> {
    (device != Event::NO_DEVICE).then_some(device)
}

fn gauge(level: &Level) -> Gauge {
    Gauge {
        peak: level.peak(),
        peak_ns: level.at.map(|(ns, _)| ns),
        end: level.end(),
    }
}

fn figures(ordinal: u8, device: &Device, wrapped: bool) -> DeviceFigures {
    let (requested, allocated) = (gauge(&device.requested), gauge(&device.allocated));
    let mut reserved = gauge(&device.reserved);
    if wrapped {
        // Segments from before the window are not seen, but what is allocated is reserved.
        if allocated.peak > reserved.peak {
            (reserved.peak, reserved.peak_ns) = (allocated.peak, allocated.peak_ns);
        }
        reserved.end = reserved.end.max(allocated.end);
    }
    // A framework's segments with nothing but its tensors in them say nothing of what was requested.
    let whole = !wrapped && reserved.peak > 0 && requested.peak > 0;
    DeviceFigures {
        device: named(ordinal),
        requested,
        allocated,
        reserved,
        utilization: whole.then(|| requested.peak as f64 / reserved.peak as f64),
        tensors: device.framework.map(|framework| TensorFigures {
            tensors: gauge(&device.tensors),
            allocated_peak: framework.allocated_peak,
            reserved_peak: framework.reserved_peak,
            allocated_end: framework.allocated,
            reserved_end: framework.reserved,
            top_at_peak: Vec::new(),
            top_at_end: Vec::new(),
        }),
        top_at_peak: Vec::new(),
        top_at_end: Vec::new(),
    }
}

/// The tickets of the peaks, in order, with whose they are.
fn peaks(account: &Account) -> Vec<(u64, u8, Layer)> {
    let mut peaks = Vec::new();
    for (ordinal, device) in &account.devices {
        for (level, layer) in [
            (&device.requested, Layer::Device),
            (&device.tensors, Layer::Tensor),
        ] {
            peaks.extend(level.at.map(|(_, ticket)| (ticket, *ordinal, layer)));
        }
    }
    peaks.sort_unstable_by_key(|(ticket, ..)| *ticket);
    peaks
}

fn tops_at(
    trace: &dyn Recording,
    mut account: Account,
    peaks: &[(u64, u8, Layer)],
) -> FxHashMap<(u8, Layer), Vec<SizeGroup>> {
    let mut tops = FxHashMap::default();
    let mut wanted = peaks.iter().peekable();
    for record in trace.events() {
        account.feed(&record);
        while let Some((_, ordinal, layer)) =
            wanted.next_if(|(ticket, ..)| *ticket <= record.ticket)
        {
            tops.insert((*ordinal, *layer), groups(&account, *ordinal, *layer));
        }
        if wanted.peek().is_none() {
            break;
        }
    }
    tops
}

/// The live blocks of a layer, grouped by size, the groups with most bytes first.
fn groups(account: &Account, ordinal: u8, of: Layer) -> Vec<SizeGroup> {
    let mut counts = FxHashMap::<u64, u64>::default();
    for (layer, live) in account.live() {
        if layer == of && live.device == ordinal {
            *counts.entry(live.size).or_default() += 1;
        }
    }
    let group = |(size, count): (u64, u64)| SizeGroup {
        size,
        count,
        bytes: size.saturating_mul(count),
    };
    let mut groups: Vec<_> = counts.into_iter().map(group).collect();
    groups.sort_unstable_by_key(|group| (std::cmp::Reverse(group.bytes), group.size));
    groups.truncate(TOP);
    groups
}

#[cfg(test)]
mod tests;
