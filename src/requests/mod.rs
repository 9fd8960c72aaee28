//! The requests of a run: allocations and frees, in order.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ledger::{Block, Change, Focus, Ledger};
use crate::recording::{Recording, Segment};
use gpushim_trace::{Class, Event, Kind, Layer, Record};

mod changed;
mod divided;
mod lost;
#[cfg(test)]
#[path = "../../benches/made/requests.rs"]
#[allow(dead_code, reason = "benches use the rest")]
pub(crate) mod made;
mod numbered;
mod odd;
mod reader;
mod slice;

use lost::Lost;
use reader::Reader;

pub use changed::Changed;
pub use divided::STEPS;
pub use odd::Anomalies;

/// The most streams.
pub const STREAMS: usize = 512;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A block.
    Allocate,
    /// It comes back.
    Free,
    /// Streams are done with a block that came back while they used it: now its memory can serve others.
    Done,
    /// Cached memory is to go back to the driver: all, or with a stream that of the stream-ordered pool beyond so
    /// many bytes.
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

/// A request as it is kept: 24 bytes, since runs have millions.
#[derive(Clone, Copy, Debug)]
struct StoredRequest {
    bytes: u64,
    ns: u64,
    block: u32,
    /// Index of stream and thread, and the operation in the lowest bits.
    by_and_op: u32,
}

/// Bits of an operation.
const OP_BITS: u32 = 2;

impl Op {
    fn bits(self) -> u32 {
        match self {
            Op::Allocate => 0,
            Op::Free => 1,
            Op::Done => 2,
            Op::Trim => 3,
        }
    }
}

impl StoredRequest {
    fn op(&self) -> Op {
        match self.by_and_op & ((1 << OP_BITS) - 1) {
            0 => Op::Allocate,
            1 => Op::Free,
            2 => Op::Done,
            _ => Op::Trim,
        }
    }

    /// Index of stream and thread.
    fn by(&self) -> u32 {
        self.by_and_op >> OP_BITS
    }
}

/// The state at the beginning of a recording, if the recording has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitialState {
    /// The reserved segments.
    pub segments: Vec<InitialSegment>,
    /// The blocks in it; they are the first requests, too.
    pub blocks: Vec<InitialBlock>,
    /// Blocks in it that the program had dropped and streams still used: no requests.
    pub waiting: Vec<InitialBlock>,
}

/// Memory that was held from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialSegment {
    /// Where it begins.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// The number of the pool that it belongs to; 0 is the default pool.
    pub pool: u32,
    /// What else is known of it.
    pub of: Segment,
}

/// What a recording says about the allocator that served the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedAllocator {
    /// Segments that it got from the driver during the recording, in order.
    pub got: Vec<InitialSegment>,
    /// Address and bytes of what it gave back, for each [`Op::Trim`].
    pub gave_back: Vec<Vec<(u64, u64)>>,
    /// Blocks that streams used when they came back: each is followed by an [`Op::Done`], or never done.
    late: FxHashSet<u32>,
    /// The pool of blocks that are not in the default pool.
    pools: FxHashMap<u32, u32>,
    /// Its options, by name.
    pub options: BTreeMap<String, String>,
}

impl RecordedAllocator {
    /// Whether streams used a block when it came back.
    pub fn is_late(&self, block: u32) -> bool {
        self.late.contains(&block)
    }

    /// The number of the pool that a block was in; 0 is the default pool.
    pub fn pool(&self, block: u32) -> u32 {
        self.pools.get(&block).copied().unwrap_or(0)
    }
}

/// A block that was there when a recording began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialBlock {
    /// Where it begins.
    pub address: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Its number.
    pub block: u32,
    /// Its stream.
    pub stream: Option<u64>,
}

/// The requests for the memory of one device.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    kept: Vec<StoredRequest>,
    by: Vec<(Option<u64>, u32)>,
    /// The places of those.
    places: FxHashMap<(Option<u64>, u32), u32>,
    blocks: u32,
    given: InitialState,
    pub(super) allocator: RecordedAllocator,
    /// The first request of each step, and last the one after the last step.
    steps: Vec<usize>,
    /// Until they are divided into steps: of each the ticket of its event and one, 0 before the first event. Empty if each event is
    /// a request.
    tickets: Vec<u64>,
    /// Bytes that were not freed, and the peak of those.
    live: u64,
    peak: u64,
    odd: Anomalies,
    /// The most bytes that were held from the driver when it was recorded; 0 if that is not known.
    recorded_reserved: u64,
    /// The first of them that are of blocks made before the recording began.
    made_before: usize,
    /// Whether more may have been live before the events that are left.
    is_peak_unsure: bool,
}

impl Requests {
    /// Those of a recording, by device. A framework's tensors where the focus is on them, else the memory
    /// that pools of the driver or ours served.
    pub fn of(recording: &dyn Recording, focus: Focus) -> BTreeMap<u8, Requests> {
        let mut all = Requests::read(recording, focus);
        all.values_mut().for_each(|requests| requests.divide(&[]));
        all
    }

    /// The same, not yet divided into steps.
    fn read(recording: &dyn Recording, focus: Focus) -> BTreeMap<u8, Requests> {
        if let Some(requests) = Requests::numbered(recording, focus) {
            return requests;
        }
        let (requests, unseen) = Requests::with_unseen(recording, focus, &[]);
        if unseen.is_empty() {
            return requests;
        }
        // Once more, with the blocks that only their frees tell of.
        Requests::with_unseen(recording, focus, &unseen).0
    }

    /// The same, given the frees of the blocks of before the recording that nothing else tells of. Also what those are.
    fn with_unseen(
        recording: &dyn Recording,
        focus: Focus,
        unseen: &[(Record, Block)],
    ) -> (BTreeMap<u8, Requests>, Vec<(Record, Block)>) {
        let mut devices = Devices::default();
        let options = options(recording);
        let new = |device| {
            let mut reader = Reader::new(recording, focus.layer, device);
            reader.requests.allocator.options.clone_from(&options);
            reader
        };
        let is_there = |device: u8| {
            device != Event::NO_DEVICE && focus.device.is_none_or(|asked| asked == device)
        };
        let mut ledger = Ledger::new(None);
        let first = recording.events().next();
        let (first_ns, first_ticket) =
            first.map_or((u64::MAX, 0), |first| (first.ns, first.ticket));
        let begun = |event: Event| Record {
            ns: first_ns,
            ticket: first_ticket,
            event,
        };
        let mut older = recording.live().unwrap_or_default();
        older.retain(|one| one.ns < first_ns);
        for one in &older {
            ledger.begin(std::slice::from_ref(one), &mut |change| {
                if let Change::WasThere(block) = change
                    && is_there(block.device)
                    && is_pooled(focus.layer, block.class)
                {
                    let reader = devices.of(block.device, new);
                    reader.was_there(&begun(one.event), block);
                }
            });
        }
        for (free, block) in unseen {
            let reader = devices.of(block.device, new);
            reader.was_there_unseen(&begun(free.event), block);
        }
        let mut found = Vec::new();
        for record in recording.events() {
            let event = &record.event;
            let concerns = concerns(focus.layer, event);
            if concerns && is_there(event.device) {
                let reader = devices.of(event.device, new);
                reader.see(&record);
            }
            ledger.apply(&record, &mut |change| {
                if let Change::FreedUnseen(block) = change
                    && block.size > 0
                    && is_there(block.device)
                    && is_pooled(focus.layer, block.class)
                {
                    found.push((record, *block));
                }
                if concerns && let Some(reader) = devices.get(change.device()) {
                    reader.take(change, &record);
                }
            });
        }
        let lost = Lost::of(recording, focus.layer, first_ns);
        let done = devices.all.into_iter().map(|(device, reader)| {
            let mut requests = reader.finish();
            lost.tell(device, &mut requests);
            (device, requests)
        });
        let requests = done.filter(|(_, requests)| !requests.is_empty());
        (requests.collect(), found)
    }

    /// Whether there are requests besides those of blocks that were made before the recording began: a snapshot without
    /// a history has none.
    pub fn has_history(&self) -> bool {
        self.kept.len() > self.made_before
    }

    /// Whether more may have been live before the events that are left of the run.
    pub fn is_peak_unsure(&self) -> bool {
        self.is_peak_unsure
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

    /// The state when the recording began.
    pub fn given(&self) -> &InitialState {
        &self.given
    }

    /// The data of the recording on the allocator that served the run.
    pub fn allocator(&self) -> &RecordedAllocator {
        &self.allocator
    }

    /// The first request of each step, and last the one after the last step; empty where no steps are known.
    pub fn steps(&self) -> &[usize] {
        &self.steps
    }

    /// The contradictory or unsupported events.
    pub fn odd(&self) -> &Anomalies {
        &self.odd
    }

    /// The most bytes that were held from the driver when it was recorded, where that is known.
    pub fn recorded_reserved(&self) -> Option<u64> {
        Some(self.recorded_reserved).filter(|bytes| *bytes > 0)
    }

    /// Bytes that were held and free when the recording began: cache of requests that are not in it.
    pub fn cached_before(&self) -> u64 {
        let sum = |all: &mut dyn Iterator<Item = u64>| all.fold(0_u64, u64::saturating_add);
        let held = sum(&mut self.given.segments.iter().map(|segment| segment.bytes));
        let used = sum(&mut self.given.blocks.iter().map(|block| block.bytes));
        held.saturating_sub(used)
    }

    /// The requests in order.
    pub fn iter(&self) -> impl Iterator<Item = Request> + '_ {
        self.kept.iter().map(|kept| {
            let (stream, thread) = self.by.get(kept.by() as usize).copied().unwrap_or_default();
            Request {
                op: kept.op(),
                block: kept.block,
                bytes: kept.bytes,
                stream,
                thread,
                ns: kept.ns,
            }
        })
    }

    /// The peak of requested bytes that were not freed.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// Adds a request; false if its block is one too many.
    pub fn push(&mut self, request: Request) -> bool {
        if request.op == Op::Allocate {
            let Some(blocks) = request.block.checked_add(1) else {
                return false;
            };
            self.blocks = self.blocks.max(blocks);
        }
        let by = (request.stream, request.thread);
        // Mostly the one before.
        let last = self.kept.last().map_or(0, StoredRequest::by);
        let by = if self.by.get(last as usize) == Some(&by) {
            last
        } else {
            *self.places.entry(by).or_insert_with(|| {
                self.by.push(by);
                (self.by.len() - 1) as u32
            })
        };
        self.kept.push(StoredRequest {
            bytes: request.bytes,
            ns: request.ns,
            block: request.block,
            by_and_op: by << OP_BITS | request.op.bits(),
        });
        match request.op {
            Op::Allocate => {
                self.live = self.live.saturating_add(request.bytes);
                self.peak = self.peak.max(self.live);
            }
            Op::Free => self.live = self.live.saturating_sub(request.bytes),
            Op::Done | Op::Trim => {}
        }
        true
    }
}

/// Those who read the requests of a device each: few, of which mostly the first is asked for.
#[derive(Default)]
struct Devices<'a> {
    all: Vec<(u8, Reader<'a>)>,
}

impl<'a> Devices<'a> {
    fn get(&mut self, device: u8) -> Option<&mut Reader<'a>> {
        let found = self.all.iter_mut().find(|(of, _)| *of == device);
        found.map(|(_, reader)| reader)
    }

    fn of(&mut self, device: u8, new: impl FnOnce(u8) -> Reader<'a>) -> &mut Reader<'a> {
        let at = self.all.iter().position(|(of, _)| *of == device);
        let at = at.unwrap_or_else(|| {
            self.all.push((device, new(device)));
            self.all.len() - 1
        });
        &mut self.all[at].1
    }
}

/// The options of the allocator that a recording names.
fn options(recording: &dyn Recording) -> BTreeMap<String, String> {
    let facts = recording.facts().into_iter();
    let named =
        facts.filter_map(|(key, value)| Some((key.strip_prefix("allocator.")?.to_string(), value)));
    named.collect()
}

/// Whether an event is about memory of this layer, or what it comes from.
fn concerns(layer: Layer, event: &Event) -> bool {
    match event.kind {
        Kind::TensorAlloc | Kind::TensorFree => layer == Layer::Tensor,
        Kind::Alloc | Kind::Free | Kind::Trim | Kind::ContextGone => layer != Layer::Tensor,
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
