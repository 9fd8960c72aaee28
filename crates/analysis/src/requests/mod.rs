//! The requests of a run: allocations and frees, in order.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ledger::{Block, Change, Focus, Ledger};
use gpushim_recording::{Recording, Segment, Settings};
use gpushim_trace::{Class, Event, Kind, Layer, Record};

mod changed;
mod divided;
mod lost;
#[cfg(any(test, feature = "samples"))]
#[doc(hidden)]
pub mod made;
mod odd;
mod reader;
mod slice;

use reader::Reader;

pub use changed::Changed;
pub use divided::STEPS;
pub use odd::Anomalies;

/// Highest number of streams.
pub const STREAMS: usize = 512;

/// An operation of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Allocates a block for the program.
    Allocate,
    /// Frees a block of the program.
    Free,
    /// Ends the use by streams of a block freed during this use: now its memory can serve others.
    Done,
    /// Releases cached memory to the driver; with a stream, only the stream-ordered pool's memory
    /// beyond `bytes`.
    Trim,
}

/// A request to an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Operation of the request.
    pub op: Op,
    /// The number of the block, in the order of allocation.
    pub block: u32,
    /// Bytes requested; of a free, the bytes of its allocation.
    pub bytes: u64,
    /// The stream it is ordered on, 0 the default stream; `None` for the `cudaMalloc` family.
    pub stream: Option<u64>,
    /// The thread, as the recording names it.
    pub thread: u32,
    /// Ns since the start of the recording.
    pub ns: u64,
}

/// A request as it is kept: 32 bytes, since runs have millions.
#[derive(Clone, Copy, Debug)]
struct StoredRequest {
    bytes: u64,
    ns: u64,
    block: u32,
    /// Index of stream and thread.
    by: u32,
    op: Op,
}

/// The state at the beginning of a recording, if the recording has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitialState {
    /// Segments that were reserved.
    pub segments: Vec<InitialSegment>,
    /// Blocks that were live; they are the first requests, too.
    pub blocks: Vec<InitialBlock>,
    /// Blocks that the program had freed and streams still used; they are no requests.
    pub waiting: Vec<InitialBlock>,
}

/// Memory that was reserved from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialSegment {
    /// Address of its first byte.
    pub address: u64,
    /// Number of bytes reserved.
    pub bytes: u64,
    /// The number of the pool that it belongs to; 0 is the default pool.
    pub pool: u32,
    /// Data on its stream, pool and use.
    pub of: Segment,
}

/// The recording's data on the allocator that served the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedAllocator {
    /// Segments that it reserved during the recording, in order.
    pub got: Vec<InitialSegment>,
    /// Address and bytes of the released memory, for each [`Op::Trim`].
    pub gave_back: Vec<Vec<(u64, u64)>>,
    /// Blocks that streams used when they were freed: each is followed by an [`Op::Done`], or never
    /// done.
    late: FxHashSet<u32>,
    /// The pool of blocks that are not in the default pool.
    pools: FxHashMap<u32, u32>,
    /// Settings of the allocator.
    pub settings: Settings,
}

impl RecordedAllocator {
    /// Returns true if streams used a block when it was freed.
    pub fn is_late(&self, block: u32) -> bool {
        self.late.contains(&block)
    }

    /// Returns the number of the pool that a block was in; 0 is the default pool.
    pub fn pool(&self, block: u32) -> u32 {
        self.pools.get(&block).copied().unwrap_or(0)
    }
}

/// A block that was there when a recording began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialBlock {
    /// Address of its first byte.
    pub address: u64,
    /// Number of bytes requested.
    pub bytes: u64,
    /// Number of the live block.
    pub block: u32,
    /// Stream of the live block.
    pub stream: Option<u64>,
}

/// The requests for the memory of one device.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    kept: Vec<StoredRequest>,
    by: Vec<(Option<u64>, u32)>,
    /// Index of each stream and thread in `by`.
    places: FxHashMap<(Option<u64>, u32), u32>,
    blocks: u32,
    given: InitialState,
    allocator: RecordedAllocator,
    /// The first request of each step; the last entry is the request after the last step.
    steps: Vec<usize>,
    /// Ticket of the event of each request, plus one; 0 before the first event. It is kept until
    /// the requests are divided into steps.
    tickets: Vec<u64>,
    /// Bytes that were not freed; `peak` is their highest sum.
    live: u64,
    peak: u64,
    odd: Anomalies,
    /// The highest reserved bytes at the recording; 0 if unknown.
    recorded_reserved: u64,
    /// Number of first requests whose blocks were made before the recording began.
    made_before: usize,
    /// True if more may have been live before the readable events.
    is_peak_unsure: bool,
}

impl Requests {
    /// Reads the requests of a recording, by device. They are a framework's tensors if the focus is
    /// on tensors, else the memory that pools of the driver or the shim served.
    pub fn of(recording: &dyn Recording, focus: Focus) -> BTreeMap<u8, Requests> {
        let mut all = Requests::read(recording, focus);
        all.values_mut().for_each(|requests| requests.divide(&[]));
        all
    }

    /// Reads the requests without dividing them into steps.
    fn read(recording: &dyn Recording, focus: Focus) -> BTreeMap<u8, Requests> {
        let (requests, unseen) = Requests::with_unseen(recording, focus, &[]);
        if unseen.is_empty() {
            return requests;
        }
        // The second pass has the older blocks that only their frees show.
        Requests::with_unseen(recording, focus, &unseen).0
    }

    /// Reads the requests with these frees of older blocks, which nothing else shows. Also returns
    /// the frees that it finds.
    fn with_unseen(
        recording: &dyn Recording,
        focus: Focus,
        unseen: &[(Record, Block)],
    ) -> (BTreeMap<u8, Requests>, Vec<(Record, Block)>) {
        let mut devices = BTreeMap::<u8, Reader>::new();
        let new = |device| Reader::new(recording, focus.layer, device);
        let is_there = |device: u8| {
            device != Event::NO_DEVICE && focus.device.is_none_or(|asked| asked == device)
        };
        let mut ledger = Ledger::new(None);
        let (older, first) = recording.older();
        let (first_ns, first_ticket) =
            first.map_or((u64::MAX, 0), |first| (first.ns, first.ticket));
        let begun = |event: Event| Record {
            ns: first_ns,
            ticket: first_ticket,
            event,
        };
        for one in &older {
            ledger.begin(std::slice::from_ref(one), &mut |change| {
                if let Change::WasThere(block) = change
                    && is_there(block.device)
                    && is_pooled(focus.layer, block.class)
                {
                    let reader = devices.entry(block.device);
                    let reader = reader.or_insert_with(|| new(block.device));
                    reader.was_there(&begun(one.event), block);
                }
            });
        }
        for (free, block) in unseen {
            let reader = devices.entry(block.device);
            let reader = reader.or_insert_with(|| new(block.device));
            reader.was_there_unseen(&begun(free.event), block);
        }
        let mut found = Vec::new();
        for record in recording.events() {
            let event = &record.event;
            let concerns = concerns(focus.layer, event);
            if concerns && is_there(event.device) {
                let reader = devices.entry(event.device);
                let reader = reader.or_insert_with(|| new(event.device));
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
                if concerns && let Some(reader) = devices.get_mut(&change.device()) {
                    reader.take(change, &record);
                }
            });
        }
        let done = devices.into_iter();
        let done = done.map(|(device, reader)| (device, reader.finish()));
        let mut requests = done.filter(|(_, requests)| !requests.is_empty()).collect();
        lost::tell(recording, focus.layer, first_ns, &mut requests);
        (requests, found)
    }

    /// Returns true if there are requests besides the blocks that were made before the recording
    /// began. A snapshot without a history has none.
    pub fn has_history(&self) -> bool {
        self.kept.len() > self.made_before
    }

    /// Returns true if more may have been live before the readable events of the run.
    pub fn is_peak_unsure(&self) -> bool {
        self.is_peak_unsure
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Returns true if there are no requests.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns the number of blocks that were ever allocated; their numbers are below it.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the state when the recording began.
    pub fn given(&self) -> &InitialState {
        &self.given
    }

    /// Returns the recording's data on the allocator that served the run.
    pub fn allocator(&self) -> &RecordedAllocator {
        &self.allocator
    }

    /// Returns the first request of each step; the last entry is the request after the last step.
    /// Empty if no steps are known.
    pub fn steps(&self) -> &[usize] {
        &self.steps
    }

    /// Returns the contradictory or unsupported events.
    pub fn odd(&self) -> &Anomalies {
        &self.odd
    }

    /// Returns the highest reserved bytes at the recording, if known.
    pub fn recorded_reserved(&self) -> Option<u64> {
        Some(self.recorded_reserved).filter(|bytes| *bytes > 0)
    }

    /// Returns the bytes that were reserved and free when the recording began: cache of earlier
    /// requests.
    pub fn cached_before(&self) -> u64 {
        let sum = |all: &mut dyn Iterator<Item = u64>| all.fold(0_u64, u64::saturating_add);
        let held = sum(&mut self.given.segments.iter().map(|segment| segment.bytes));
        let used = sum(&mut self.given.blocks.iter().map(|block| block.bytes));
        held.saturating_sub(used)
    }

    /// Returns the requests in order.
    pub fn iter(&self) -> impl Iterator<Item = Request> + '_ {
        self.kept.iter().map(|kept| {
            let (stream, thread) = self.by.get(kept.by as usize).copied().unwrap_or_default();
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

    /// Returns the peak of requested bytes that were not freed.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// Adds a request; returns false if its block is one too many.
    pub fn push(&mut self, request: Request) -> bool {
        if request.op == Op::Allocate {
            let Some(blocks) = request.block.checked_add(1) else {
                return false;
            };
            self.blocks = self.blocks.max(blocks);
        }
        let by = (request.stream, request.thread);
        // It is mostly the one before.
        let last = self.kept.last().map_or(0, |last| last.by);
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
            by,
            op: request.op,
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

/// Returns true if an event is about memory of this layer, or its segments.
fn concerns(layer: Layer, event: &Event) -> bool {
    match event.kind {
        Kind::TensorAlloc | Kind::TensorFree => layer == Layer::Tensor,
        Kind::Alloc | Kind::Free | Kind::Trim | Kind::ContextGone => layer != Layer::Tensor,
        Kind::Reserve | Kind::Release => true,
        _ => false,
    }
}

/// Returns true if a pool would have served it: the shim's, or the driver's own.
fn is_pooled(layer: Layer, class: Class) -> bool {
    match layer {
        Layer::Tensor => class == Class::Tensor,
        _ => matches!(class, Class::Device | Class::PoolAsync),
    }
}
