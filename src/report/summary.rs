//! Computes the figures of a trace from its events.

use rustc_hash::FxHashMap;

use super::figures::{
    Classes, DeviceFigures, Gauge, OutOfMemory, SizeGroup, Sources, Summary, TensorFigures,
};
use crate::device_memory::{MemorySums, When};
use crate::ledger::{Account, Block, DeviceAccount, Focus, Level, Visitor};
use crate::oom::Shortages;
use crate::recording::{Coverage, Reader, Recording};
use gpushim_trace::{Class, Event, Kind, Layer, LiveBlock, Record, flags};

/// Most size groups that are kept.
const TOP: usize = 8;
const OUT_OF_MEMORY_MAX: usize = 100;

/// Makes the figures of a report in one pass over the events of a recording.
pub struct SummaryBuilder {
    counts: Counts,
    account: Account,
    /// Memory of devices, by owner.
    pub memory_sums: MemorySums,
    wrapped: bool,
    coverage: Coverage,
    /// Live blocks at the end, until the first event shows which of them are older.
    kept: Option<Vec<LiveBlock>>,
    older: Option<SizeGroup>,
    /// Requests that could not be met.
    pub shortages: Shortages,
}

/// Moment of the most live bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeakOf {
    /// Layer and device of the bytes.
    pub focus: Focus,
    /// Time, ns since the start.
    pub ns: u64,
    /// Ticket of the first event after the moment.
    pub ticket: u64,
    /// Bytes of all live blocks, including the unknown ones.
    pub bytes: u64,
}

impl SummaryBuilder {
    /// Makes a builder. Events that name no device count as events of the device `only`.
    pub fn new(recording: &dyn Recording, only: Option<u8>) -> SummaryBuilder {
        let kept = recording.live();
        SummaryBuilder {
            counts: Counts::default(),
            account: Account::of_only(only),
            memory_sums: MemorySums::new(When::Peak),
            wrapped: recording.coverage().wrapped,
            coverage: recording.coverage(),
            older: kept.is_some().then_some(SizeGroup {
                size: 0,
                count: 0,
                bytes: 0,
            }),
            kept,
            shortages: Shortages::new(None),
        }
    }

    /// Completes the figures after the last event. Where not every live block is known, the
    /// recording's sums replace the live bytes.
    pub fn settle(&mut self, recording: &dyn Recording) {
        for (ordinal, device) in &mut self.account.devices {
            for layer in [Layer::Device, Layer::Tensor] {
                if let Some(bytes) = recording.live_bytes(layer, *ordinal) {
                    device.live_at_end(layer, bytes);
                }
            }
        }
    }

    /// Device for the events that name none, if it is another than the given one.
    pub fn other_only(&self) -> Option<Option<u8>> {
        self.account.ledger().other_only()
    }

    /// True if a layer has allocations or frees.
    pub fn has(&self, layer: Layer) -> bool {
        let mut classes = self.counts.classes.keys();
        classes.any(|class| class.layer() == layer)
    }

    /// Returns the device on which the blocks of `device` are counted.
    pub fn ordinal(&self, device: u8) -> u8 {
        self.account.ledger().ordinal_of(device)
    }

    /// Returns the peaks of tensors and of device memory, by device.
    pub fn peaks(&self) -> Vec<PeakOf> {
        let mut peaks = Vec::new();
        for (ordinal, device) in &self.account.devices {
            for (level, layer) in [
                (&device.tensors, Layer::Tensor),
                (&device.requested, Layer::Device),
            ] {
                peaks.extend(level.at.map(|(ns, ticket)| PeakOf {
                    focus: Focus {
                        layer,
                        device: Some(*ordinal),
                    },
                    ns,
                    ticket,
                    bytes: level.peak(),
                }));
            }
        }
        peaks
    }

    /// Returns the figures. `at_peaks` has the live blocks at the peaks.
    pub fn summary(self, at_peaks: &[(PeakOf, Vec<Block>)]) -> Summary {
        let (account, wrapped) = (&self.account, self.wrapped);
        let mut devices: Vec<&(u8, DeviceAccount)> = account.devices.iter().collect();
        devices.retain(|(_, device)| device.is_used);
        devices.sort_unstable_by_key(|(ordinal, _)| *ordinal);
        let devices = devices.into_iter().map(|(ordinal, device)| {
            let mut figures = figures(*ordinal, device, wrapped);
            let at_peak = |layer| {
                let of = Focus {
                    layer,
                    device: Some(*ordinal),
                };
                let found = at_peaks.iter().find(|(peak, _)| peak.focus == of);
                let blocks = found.map_or(&[][..], |(_, blocks)| blocks);
                groups(blocks.iter().map(|block| block.size))
            };
            let at_end = |of: Layer| groups(account.live(of, *ordinal).map(|block| block.size));
            figures.top_at_peak = at_peak(Layer::Device);
            figures.top_at_end = at_end(Layer::Device);
            if let Some(tensors) = &mut figures.tensors {
                tensors.top_at_peak = at_peak(Layer::Tensor);
                tensors.top_at_end = at_end(Layer::Tensor);
            }
            figures
        });
        let devices = devices.collect();
        Summary {
            older: self.older,
            ..self.counts.into_summary(self.coverage, account, devices)
        }
    }
}

impl Reader for SummaryBuilder {
    fn read(&mut self, records: &[Record]) {
        if let (Some(first), Some(kept)) = (records.first(), self.kept.take()) {
            let kept: Vec<LiveBlock> = kept.into_iter().filter(|one| one.ns < first.ns).collect();
            let SummaryBuilder {
                account,
                memory_sums,
                ..
            } = self;
            account.begin(&kept, first, |change| memory_sums.change(change, first));
            if let Some(older) = &mut self.older {
                older.count = kept.len() as u64;
                older.bytes = (kept.iter()).fold(0, |sum, one| sum.saturating_add(one.event.size));
            }
        }
        for record in records {
            self.counts.feed(record);
            let SummaryBuilder {
                account,
                memory_sums,
                ..
            } = self;
            memory_sums.event(record, account.ledger());
            account.feed_and(record, |change| memory_sums.change(change, record));
            self.shortages.event(record);
        }
    }
}

/// Sums that do not depend on blocks.
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
            Kind::Export => self.exported += 1,
            Kind::CaptureBegin => self.captures += 1,
            Kind::ContextGone => self.contexts_gone += 1,
            Kind::DeviceMemory
            | Kind::Reserve
            | Kind::Release
            | Kind::CaptureEnd
            | Kind::RangePush
            | Kind::RangePop
            | Kind::RangeStart
            | Kind::RangeEnd
            | Kind::Mark
            | Kind::ThreadName
            | Kind::PoolState
            | Kind::ModuleLoad
            | Kind::Owner
            | Kind::OwnersWalk
            | Kind::ContextMade
            | Kind::ProcessMemory
            | Kind::GraphMade
            | Kind::GraphGone
            | Kind::CommunicatorBegin
            | Kind::CommunicatorEnd
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
        events: Coverage,
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
            events,
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
            captures: self.captures,
            contexts_gone: self.contexts_gone,
            unknown: self.unknown,
            older: None,
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

fn figures(ordinal: u8, device: &DeviceAccount, wrapped: bool) -> DeviceFigures {
    let (requested, allocated) = (gauge(&device.requested), gauge(&device.allocated));
    let mut reserved = gauge(&device.reserved);
    if wrapped {
        // Segments from before the window are unknown, but allocated memory is always reserved.
        if allocated.peak > reserved.peak {
            (reserved.peak, reserved.peak_ns) = (allocated.peak, allocated.peak_ns);
        }
        reserved.end = reserved.end.max(allocated.end);
    }
    // A framework's segments alone have no requested bytes, so they have no utilization. Tensors
    // may be known from the live table only.
    let has_tensors = device.framework.is_some() || device.tensors.peak() > 0;
    let framework = has_tensors.then(|| device.framework.unwrap_or_default());
    let [by_pools, by_framework] = device.unused;
    let [unused, reserved_then] = by_pools.bytes(&device.reserved, &device.allocated);
    let whole = !wrapped && reserved.peak > 0 && requested.peak > 0;
    // The events of tensors have the bytes that the framework holds. Memory that it released after
    // the last of them shows only in the events of its segments, or of the driver memory behind
    // these.
    let held_at_end = |said: u64| match (requested.peak, reserved.peak) {
        (0, 0) => said,
        (0, _) => reserved.end,
        _ => said.min(requested.end),
    };
    DeviceFigures {
        device: named(ordinal),
        requested,
        allocated,
        reserved,
        unused: (!wrapped).then_some(unused),
        reserved_then,
        then_ns: by_pools.ns,
        in_use: device.in_use.as_ref().map(gauge),
        utilization: whole.then(|| requested.peak as f64 / reserved.peak as f64),
        tensors: framework.map(|[allocated, reserved]| {
            let [unused, reserved_then] = by_framework.bytes(&reserved, &allocated);
            TensorFigures {
                tensors: gauge(&device.tensors),
                allocated_peak: allocated.peak(),
                reserved_peak: reserved.peak(),
                unused,
                reserved_then,
                then_ns: by_framework.ns,
                allocated_end: allocated.end(),
                reserved_end: held_at_end(reserved.end()),
                top_at_peak: Vec::new(),
                top_at_end: Vec::new(),
            }
        }),
        top_at_peak: Vec::new(),
        top_at_end: Vec::new(),
    }
}

/// Groups blocks by size, the groups with most bytes first.
fn groups(sizes: impl Iterator<Item = u64>) -> Vec<SizeGroup> {
    let mut counts = FxHashMap::<u64, u64>::default();
    sizes.for_each(|size| *counts.entry(size).or_default() += 1);
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
