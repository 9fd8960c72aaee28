//! The requests of a run: what was asked for and given back, in order.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::analysis::Focus;
use crate::recording::Recording;
use crate::trace::{Class, Event, Kind, Layer, Record, flags};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A block.
    Allocate,
    /// It comes back.
    Free,
    /// Cached memory is to go back to the driver.
    Trim,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub op: Op,
    /// The number of the block, in the order of allocation.
    pub block: u32,
    /// Bytes asked for, of a free those of its allocation.
    pub bytes: u64,
    /// The stream it is ordered on, 0 the default stream; `None` for the `cudaMalloc` family.
    pub stream: Option<u64>,
    /// The thread, as the recording names it.
    pub thread: u32,
    /// Ns since the start of the recording.
    pub ns: u64,
}

/// A request as it is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    bytes: u64,
    ns: u64,
    block: u32,
    /// Index of stream and thread.
    by: u16,
    op: Op,
}

/// What was there when a recording began, where it tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Address and bytes of what was held from the driver.
    pub segments: Vec<(u64, u64)>,
    /// The blocks in it; they are the first requests, too.
    pub blocks: Vec<GivenBlock>,
}

/// A block that was there when a recording began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenBlock {
    /// Where it begins.
    pub address: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Its number.
    pub block: u32,
    /// Its stream.
    pub stream: Option<u64>,
}

/// What makes no sense in a recording, or could not be taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Odd {
    /// Frees of addresses where nothing was live; left out.
    pub unmatched_frees: u64,
    /// Allocations of addresses where something was live, which then counts as freed.
    pub double_allocations: u64,
    /// Allocations of no bytes; left out.
    pub empty: u64,
    /// Memory that no pool would serve (pinned, managed, arrays, imported, …): how many blocks.
    pub not_pooled: u64,
    /// Blocks beyond what can be numbered or told apart; left out.
    pub too_many: u64,
    /// The first of these, by event.
    pub first: Option<u64>,
}

impl Odd {
    /// One sentence for each thing, for people.
    pub fn sentences(&self) -> Vec<String> {
        let counts = [
            (
                self.unmatched_frees,
                "frees of what was not live are left out",
            ),
            (
                self.double_allocations,
                "allocations are of an address that was live: that block counts as freed then",
            ),
            (self.empty, "allocations of no bytes are left out"),
            (
                self.too_many,
                "requests are more than can be told apart, and left out",
            ),
        ];
        let first = self.first.map_or(String::new(), |event| {
            format!("; the first is event {event}")
        });
        let some = counts.into_iter().filter(|(count, _)| *count > 0);
        let mut sentences: Vec<String> = some
            .map(|(count, what)| format!("{count} {what}{first}"))
            .collect();
        if self.not_pooled > 0 {
            sentences.push(format!(
                "{} blocks of pinned, managed or imported memory are not replayed",
                self.not_pooled
            ));
        }
        sentences
    }
}

/// The requests for the memory of one device.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    kept: Vec<Kept>,
    by: Vec<(Option<u64>, u32)>,
    blocks: u32,
    given: Given,
    odd: Odd,
    /// The most bytes that were held from the driver when it was recorded; 0 if that is not known.
    recorded_reserved: u64,
}

impl Requests {
    /// Those of a recording, by device. A framework's tensors where the focus is on them, else the memory
    /// that pools of the driver or ours served.
    pub fn of(recording: &dyn Recording, focus: Focus) -> BTreeMap<u8, Requests> {
        let mut devices: BTreeMap<u8, Reader> = BTreeMap::new();
        for record in recording.events() {
            let event = &record.event;
            let is_there = focus.device.is_none_or(|device| device == event.device);
            if is_there && event.device != Event::NO_DEVICE && concerns(focus.layer, event) {
                devices
                    .entry(event.device)
                    .or_default()
                    .see(recording, focus.layer, &record);
            }
        }
        let done = devices
            .into_iter()
            .map(|(device, reader)| (device, reader.requests));
        done.filter(|(_, requests)| !requests.is_empty()).collect()
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// How many blocks were ever allocated; their numbers are below.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// What was there when the recording began.
    pub fn given(&self) -> &Given {
        &self.given
    }

    /// What made no sense.
    pub fn odd(&self) -> &Odd {
        &self.odd
    }

    /// The most bytes that were held from the driver when it was recorded, where that is known.
    pub fn recorded_reserved(&self) -> Option<u64> {
        Some(self.recorded_reserved).filter(|bytes| *bytes > 0)
    }

    /// The requests in order.
    pub fn iter(&self) -> impl Iterator<Item = Request> + '_ {
        self.kept.iter().map(|kept| {
            let (stream, thread) = self
                .by
                .get(usize::from(kept.by))
                .copied()
                .unwrap_or_default();
            Request {
                op: kept.op,
                block: kept.block,
                bytes: kept.bytes,
                stream,
                thread,
                ns: kept.ns,
            }
        })
    }

    /// The highest sum of what was asked for and not yet given back, bytes.
    pub fn peak(&self) -> u64 {
        let (mut live, mut peak) = (0_u64, 0);
        for request in &self.kept {
            match request.op {
                Op::Allocate => live = live.saturating_add(request.bytes),
                Op::Free => live = live.saturating_sub(request.bytes),
                Op::Trim => {}
            }
            peak = peak.max(live);
        }
        peak
    }

    /// Adds a request; false if its stream and thread, or its block, are one too many.
    pub(super) fn push(&mut self, request: Request) -> bool {
        let by = (request.stream, request.thread);
        // Mostly the one before.
        let last = self.kept.last().map_or(0, |kept| usize::from(kept.by));
        let place = if self.by.get(last) == Some(&by) {
            Some(last)
        } else {
            self.by.iter().position(|known| *known == by)
        };
        let place = place.unwrap_or_else(|| {
            self.by.push(by);
            self.by.len() - 1
        });
        let Ok(by) = u16::try_from(place) else {
            self.by.pop();
            return false;
        };
        if request.op == Op::Allocate {
            let Some(blocks) = request.block.checked_add(1) else {
                return false;
            };
            self.blocks = self.blocks.max(blocks);
        }
        self.kept.push(Kept {
            bytes: request.bytes,
            ns: request.ns,
            block: request.block,
            by,
            op: request.op,
        });
        true
    }
}

/// Whether an event is about memory of this layer, or what it comes from.
fn concerns(layer: Layer, event: &Event) -> bool {
    match event.kind {
        Kind::TensorAlloc | Kind::TensorFree => layer == Layer::Tensor,
        Kind::Alloc | Kind::Free => layer != Layer::Tensor,
        Kind::Reserve | Kind::Release => true,
        _ => false,
    }
}

/// Whether a pool would have served it: ours does, or the driver's own.
fn is_pooled(layer: Layer, class: Class) -> bool {
    match layer {
        Layer::Tensor => class == Class::Tensor,
        _ => matches!(class, Class::Device | Class::PoolAsync),
    }
}

/// Makes requests of the events of one device.
#[derive(Default)]
struct Reader {
    requests: Requests,
    /// Blocks that are live: number and bytes.
    live: FxHashMap<(Class, u64), (u32, u64)>,
    /// Bytes held from the driver.
    reserved: u64,
}

impl Reader {
    fn see(&mut self, recording: &dyn Recording, layer: Layer, record: &Record) {
        let event = &record.event;
        let is_given = event.flags & flags::EARLIER != 0;
        match event.kind {
            Kind::Reserve => {
                self.reserved = self.reserved.saturating_add(event.size);
                self.recorded(self.reserved);
                if is_given {
                    let segment = (event.address, event.size);
                    self.requests.given.segments.push(segment);
                }
            }
            Kind::Release => {
                self.reserved = self.reserved.saturating_sub(event.size);
                // What our own pools give back is their decision, not the program's wish.
                if layer == Layer::Tensor {
                    self.trim(record);
                }
            }
            _ if !is_pooled(layer, event.class) => {
                let is_alloc = event.kind == Kind::Alloc;
                self.requests.odd.not_pooled += u64::from(is_alloc);
            }
            Kind::TensorAlloc => {
                self.recorded(event.extra[1]);
                self.allocate(recording, record, is_given);
            }
            Kind::Alloc => self.allocate(recording, record, is_given),
            Kind::Free | Kind::TensorFree => self.free(recording, record),
            _ => {}
        }
    }

    fn allocate(&mut self, recording: &dyn Recording, record: &Record, is_given: bool) {
        let event = &record.event;
        let key = (event.class, event.address);
        if self.live.contains_key(&key) {
            self.requests.odd.double_allocations += 1;
            self.is_odd(record);
            self.free(recording, record);
        }
        if event.size == 0 {
            self.requests.odd.empty += 1;
            return self.is_odd(record);
        }
        let block = self.requests.blocks;
        let request = request(recording, record, Op::Allocate, (block, event.size));
        if !self.requests.push(request) {
            self.requests.odd.too_many += 1;
            return self.is_odd(record);
        }
        self.live.insert(key, (block, event.size));
        if is_given {
            self.requests.given.blocks.push(GivenBlock {
                address: event.address,
                bytes: event.size,
                block,
                stream: request.stream,
            });
        }
    }

    fn free(&mut self, recording: &dyn Recording, record: &Record) {
        let key = (record.event.class, record.event.address);
        let Some(of) = self.live.remove(&key) else {
            self.requests.odd.unmatched_frees += 1;
            return self.is_odd(record);
        };
        if !self.requests.push(request(recording, record, Op::Free, of)) {
            self.requests.odd.too_many += 1;
            self.is_odd(record);
        }
    }

    fn recorded(&mut self, reserved: u64) {
        let most = &mut self.requests.recorded_reserved;
        *most = (*most).max(reserved);
    }

    /// A framework gave segments back: once for all that go together.
    fn trim(&mut self, record: &Record) {
        if self
            .requests
            .kept
            .last()
            .is_some_and(|last| last.op != Op::Trim)
        {
            let request = Request {
                op: Op::Trim,
                block: 0,
                bytes: 0,
                stream: None,
                thread: record.event.thread,
                ns: record.ns,
            };
            self.requests.push(request);
        }
    }

    fn is_odd(&mut self, record: &Record) {
        self.requests.odd.first.get_or_insert(record.ticket);
    }
}

fn request(
    recording: &dyn Recording,
    record: &Record,
    op: Op,
    (block, bytes): (u32, u64),
) -> Request {
    let event = &record.event;
    // A framework's allocator orders by streams, even where the recording does not say which.
    let stream = match event.class {
        Class::Device => None,
        _ => Some(recording.stream(record).unwrap_or(0)),
    };
    Request {
        op,
        block,
        bytes,
        stream,
        thread: event.thread,
        ns: record.ns,
    }
}
