//! Requests from the events of a device.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};

use super::{InitialBlock, InitialSegment, Op, Request, Requests, STREAMS, is_pooled};
use crate::ledger::{Block, Change, Segment};
use gpushim_recording::{Caching, Recording, Waiting};
use gpushim_trace::{Class, Effect, Event, Kind, Layer, Record, flags};

/// Makes requests of the events of one device.
pub(super) struct Reader<'a> {
    recording: &'a dyn Recording,
    layer: Layer,
    caching: Option<&'a Caching>,
    pub requests: Requests,
    /// The numbers of blocks that are live, by address.
    numbers: FxHashMap<u64, u32>,
    /// The streams of tensors whose frees name none, by block number; no entry is the default
    /// stream.
    made_for: FxHashMap<u32, u64>,
    /// Numbers of blocks that only their frees show, by address, in the order of the frees.
    unseen: FxHashMap<u64, VecDeque<u32>>,
    /// Bytes reserved from the driver.
    reserved: u64,
    /// Reserved segments by address: the end, and the number of the pool.
    segments: BTreeMap<u64, (u64, u32)>,
    /// Numbers of the pools by their ids.
    pools: FxHashMap<(u64, u64), u32>,
    /// Blocks that streams still use: ticket of the completion, number, bytes.
    late: BinaryHeap<Reverse<(u64, u32, u64)>>,
    /// Streams with numbers of their own.
    streams: FxHashSet<u64>,
    /// Blocks in use by streams when the recording began, without numbers yet.
    waiting: Vec<Waiting>,
}

impl<'a> Reader<'a> {
    /// Creates a reader for a device of a recording.
    pub fn new(recording: &'a dyn Recording, layer: Layer, device: u8) -> Reader<'a> {
        let caching = recording.caching().filter(|_| layer == Layer::Tensor);
        let waiting = caching.map_or(&[][..], |caching| &caching.waiting);
        let mut requests = Requests::default();
        if let Some(caching) = caching {
            requests.allocator.settings.clone_from(&caching.settings);
        }
        Reader {
            recording,
            layer,
            caching,
            requests,
            numbers: FxHashMap::default(),
            made_for: FxHashMap::default(),
            unseen: FxHashMap::default(),
            reserved: 0,
            segments: BTreeMap::new(),
            pools: FxHashMap::default(),
            late: BinaryHeap::new(),
            streams: FxHashSet::default(),
            waiting: waiting
                .iter()
                .filter(|one| one.device == device)
                .copied()
                .collect(),
        }
    }

    /// Takes the next event of the device; its changes are then passed to [`Reader::take`].
    pub fn see(&mut self, record: &Record) {
        let event = &record.event;
        let is_given = event.flags & flags::EARLIER != 0;
        if !is_given && !self.waiting.is_empty() {
            self.wait();
        }
        self.done(record.ticket, record);
        match event.kind {
            Kind::Trim => self.trim(record),
            Kind::Release => self.release(record),
            _ => {}
        }
        self.requested(record.ticket.saturating_add(1));
    }

    /// Adds a block that was made before the recording began; the record has its allocation.
    pub fn was_there(&mut self, record: &Record, block: &Block) {
        if let Some(number) = self.begin_with(record, block) {
            self.numbers.insert(block.address, number);
        }
    }

    /// Adds an older block that only its free shows; the record has the free.
    pub fn was_there_unseen(&mut self, record: &Record, block: &Block) {
        if let Some(number) = self.begin_with(record, block) {
            let of_address = self.unseen.entry(block.address).or_default();
            of_address.push_back(number);
        }
    }

    fn begin_with(&mut self, record: &Record, block: &Block) -> Option<u32> {
        let made = self.allocate(record, block, false);
        self.requested(0);
        made.inspect(|_| self.begun())
    }

    fn begun(&mut self) {
        self.requests.odd.made_before += 1;
        self.requests.made_before = self.requests.kept.len();
    }

    /// Adds the changes of an event.
    pub fn take(&mut self, change: &Change, record: &Record) {
        let is_given = record.event.flags & flags::EARLIER != 0;
        let is_pooled = |block: &Block| is_pooled(self.layer, block.class);
        match change {
            Change::Allocated(block) if is_pooled(block) => {
                if let Some(number) = self.allocate(record, block, is_given) {
                    self.numbers.insert(block.address, number);
                    if is_given {
                        self.begun();
                    }
                }
            }
            Change::Allocated(_) => self.requests.odd.not_pooled += 1,
            Change::Freed(block) if is_pooled(block) => {
                if let Effect::Allocated(_) = Effect::of(&record.event) {
                    self.requests.odd.double_allocations += 1;
                    self.is_odd(record);
                }
                self.free(record, block);
            }
            Change::FreedUnseen(block) if is_pooled(block) => {
                let numbers = self.unseen.get_mut(&block.address);
                match numbers.and_then(VecDeque::pop_front) {
                    Some(number) => self.free_number(record, block, number),
                    None => {
                        self.requests.odd.unmatched_frees += 1;
                        self.is_odd(record);
                    }
                }
            }
            Change::Reserved(segment) => self.reserve(record, segment, is_given),
            Change::Released(segment) | Change::ReleasedUnseen(segment) => {
                self.reserved = self.reserved.saturating_sub(segment.size);
                self.segments.remove(&segment.address);
            }
            Change::Framework { reserved, .. } => self.recorded(*reserved),
            _ => {}
        }
        self.requested(record.ticket.saturating_add(1));
    }

    /// Returns the requests that were read.
    pub fn finish(mut self) -> Requests {
        self.wait();
        self.requests
    }

    /// Gives the requests since the last call the event of this place; 0 is none.
    fn requested(&mut self, place: u64) {
        let count = self.requests.kept.len();
        self.requests.tickets.resize(count, place);
    }

    /// Gives numbers to the memory that was in use when the recording began and is no block of the
    /// program.
    fn wait(&mut self) {
        for one in std::mem::take(&mut self.waiting) {
            let block = self.requests.blocks;
            self.requests.blocks = block.saturating_add(1);
            self.requests.allocator.late.insert(block);
            self.requests.given.waiting.push(InitialBlock {
                address: one.address,
                bytes: one.bytes,
                block,
                stream: Some(one.stream),
            });
            self.late.push(Reverse((one.until, block, one.bytes)));
        }
    }

    /// Adds the uses of streams that are complete at this event.
    fn done(&mut self, ticket: u64, record: &Record) {
        while let Some(Reverse((until, block, bytes))) = self.late.peek().copied() {
            if until > ticket || until == u64::MAX {
                break;
            }
            self.late.pop();
            let of = (block, bytes);
            let request = self.request(record, Op::Done, record.event.class, of);
            self.requests.push(request);
        }
    }

    fn reserve(&mut self, record: &Record, taken: &Segment, is_given: bool) {
        self.reserved = self.reserved.saturating_add(taken.size);
        self.recorded(self.reserved);
        let of = self
            .caching
            .and_then(|caching| caching.segments.get(&record.ticket));
        let of = of.copied().unwrap_or_default();
        // The default pool comes first.
        self.pools.entry((0, 0)).or_insert(0);
        let next = self.pools.len() as u32;
        let pool = *self.pools.entry(of.pool).or_insert(next);
        let end = taken.address.saturating_add(taken.size);
        self.segments.insert(taken.address, (end, pool));
        let segment = InitialSegment {
            address: taken.address,
            bytes: taken.size,
            pool,
            of,
        };
        if is_given {
            self.requests.given.segments.push(segment);
        } else if self.caching.is_some() {
            self.requests.allocator.got.push(segment);
        }
    }

    /// Adds a request for memory that a framework released: one for all of a series of releases.
    /// Releases by the shim's own pools are their decision, not the program's.
    fn release(&mut self, record: &Record) {
        let event = &record.event;
        if self.layer != Layer::Tensor {
            return;
        }
        if self
            .requests
            .kept
            .last()
            .is_none_or(|last| last.op != Op::Trim)
        {
            let request = Request {
                stream: None,
                ..self.request(record, Op::Trim, record.event.class, (0, 0))
            };
            self.requests.push(request);
            self.requests.allocator.gave_back.push(Vec::new());
        }
        if let Some(last) = self.requests.allocator.gave_back.last_mut() {
            last.push((event.address, event.size));
        }
    }

    /// Adds a request of the program to trim the stream-ordered pool. (Memory that is released for
    /// its age is not a request.)
    fn trim(&mut self, record: &Record) {
        let event = &record.event;
        let [asked, keep] = event.extra;
        if asked == 1 && self.layer != Layer::Tensor {
            let request = Request {
                stream: Some(0),
                ..self.request(record, Op::Trim, record.event.class, (0, keep))
            };
            self.requests.push(request);
        }
    }

    /// Adds an allocation and returns the block's number; `None` if it is left out.
    fn allocate(&mut self, record: &Record, made: &Block, is_given: bool) -> Option<u32> {
        let address = made.address;
        if made.size == 0 {
            self.requests.odd.empty += 1;
            self.is_odd(record);
            return None;
        }
        let block = self.requests.blocks;
        let request = self.request(record, Op::Allocate, made.class, (block, made.size));
        if !self.requests.push(request) {
            self.requests.odd.too_many += 1;
            self.is_odd(record);
            return None;
        }
        if made.class == Class::Tensor
            && let Some(stream) = request.stream.filter(|stream| *stream != 0)
        {
            self.made_for.insert(block, stream);
        }
        let segment = self.segments.range(..=address).next_back();
        let pool = segment.filter(|(_, (end, _))| address < *end);
        if let Some((_, (_, pool))) = pool.filter(|(_, (_, pool))| *pool != 0) {
            self.requests.allocator.pools.insert(block, *pool);
        }
        if is_given {
            self.requests.given.blocks.push(InitialBlock {
                address,
                bytes: made.size,
                block,
                stream: request.stream,
            });
        }
        Some(block)
    }

    fn free(&mut self, record: &Record, freed: &Block) {
        // A block without a number was left out.
        let Some(block) = self.numbers.remove(&freed.address) else {
            return;
        };
        self.free_number(record, freed, block);
    }

    fn free_number(&mut self, record: &Record, freed: &Block, block: u32) {
        let mut request = self.request(record, Op::Free, freed.class, (block, freed.size));
        if let Some(stream) = self.made_for.remove(&block) {
            request.stream = Some(stream);
        }
        self.requests.push(request);
        let until = self
            .caching
            .and_then(|caching| caching.completed.get(&record.ticket));
        if let Some(until) = until {
            self.requests.allocator.late.insert(block);
            self.late.push(Reverse((*until, block, freed.size)));
        }
    }

    fn recorded(&mut self, reserved: u64) {
        let most = &mut self.requests.recorded_reserved;
        *most = (*most).max(reserved);
    }

    fn is_odd(&mut self, record: &Record) {
        self.requests.odd.first.get_or_insert(record.ticket);
    }

    fn request(
        &mut self,
        record: &Record,
        op: Op,
        class: Class,
        (block, bytes): (u32, u64),
    ) -> Request {
        let event: &Event = &record.event;
        // A framework's allocator orders by streams, even if the recording does not name them.
        let stream = match class {
            Class::Device => None,
            _ => Some(self.stream(self.recording.stream(record).unwrap_or(0), record)),
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

    /// Returns the number of a stream, or the common number of all streams beyond the limit.
    fn stream(&mut self, stream: u64, record: &Record) -> u64 {
        if self.streams.contains(&stream) {
            return stream;
        }
        if self.streams.len() < STREAMS {
            self.streams.insert(stream);
            return stream;
        }
        self.requests.odd.more_streams += 1;
        self.is_odd(record);
        u64::MAX
    }
}
