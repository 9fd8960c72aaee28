//! Freed blocks that could not serve a request of their kind, because streams still used them. More
//! memory was reserved.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use crate::ledger::{Block, Focus, Visitor, walk};
use crate::recording::Recording;
use gpushim_trace::{Kind, Layer, Record};

/// Key of requests that the same blocks serve: the number of their frames, their size and their
/// stream.
type Sort = (u64, u64, u64);

/// Freed blocks that waited at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassedOver {
    /// Bytes of all of these blocks.
    pub bytes: u64,
    /// The number of these blocks.
    pub blocks: u64,
    /// Id of the stack that made them.
    pub stack: u32,
}

/// Finds the most blocks that waited when a framework reserved memory for a request of the same
/// call site, size and stream. Each of them served such a request later.
///
/// Returns nothing for a recording with captures: a graph's pool does not use blocks that others
/// freed.
pub fn passed_over(recording: &dyn Recording, focus: Focus) -> PassedOver {
    let mut find = Find {
        recording,
        frames: FxHashMap::default(),
        freed: Vec::new(),
        free: BTreeMap::new(),
        by_sort: FxHashMap::default(),
        worst: FxHashMap::default(),
        streams: FxHashMap::default(),
        reserved: 0,
        stream: 0,
        grows: false,
        has_captures: false,
    };
    walk(recording, focus, &mut [&mut find]);
    if find.has_captures {
        return PassedOver::default();
    }
    let served = |(_, numbers): &(u64, Vec<usize>)| {
        let freed = numbers.iter().filter_map(|number| find.freed.get(*number));
        let freed = freed.filter(|freed| freed.serves_again);
        freed.fold(PassedOver::default(), |sum, freed| PassedOver {
            bytes: sum.bytes.saturating_add(freed.bytes),
            blocks: sum.blocks + 1,
            stack: freed.stack,
        })
    };
    let all = find.worst.values().map(served);
    let most = all.max_by_key(|sum| (sum.bytes, sum.stack));
    most.unwrap_or_default()
}

/// A block after the program freed it.
struct Freed {
    bytes: u64,
    stack: u32,
    sort: Sort,
    /// True if it served a request of the same sort later.
    serves_again: bool,
}

struct Find<'a> {
    recording: &'a dyn Recording,
    /// The number of the frames of a stack.
    frames: FxHashMap<u32, u64>,
    /// All blocks that were freed.
    freed: Vec<Freed>,
    /// Numbers of blocks that are free now, by address.
    free: BTreeMap<u64, usize>,
    /// Numbers of free blocks by sort.
    by_sort: FxHashMap<Sort, BTreeSet<usize>>,
    /// The most that was free when memory was reserved for a request, by sort: bytes, and the
    /// numbers.
    worst: FxHashMap<Sort, (u64, Vec<usize>)>,
    /// The streams of live blocks that are not on the default stream, by address.
    streams: FxHashMap<u64, u64>,
    /// Bytes that the framework held.
    reserved: u64,
    /// The stream of the current event, and true if memory was reserved for it.
    stream: u64,
    grows: bool,
    has_captures: bool,
}

impl Find<'_> {
    fn sort(&mut self, block: &Block, stream: u64) -> Sort {
        let frames = self.frames.entry(block.stack);
        let frames = *frames.or_insert_with(|| self.recording.frames(block.stack));
        (frames, block.size, stream)
    }

    /// Replaces free blocks by a new one.
    fn take(&mut self, block: &Block, sort: Sort) {
        let end = block.address.saturating_add(block.room);
        while let Some((address, number)) = self.free.range(..end).next_back() {
            let (address, number) = (*address, *number);
            let Some(freed) = self.freed.get_mut(number) else {
                break;
            };
            if address.saturating_add(freed.bytes) <= block.address {
                break;
            }
            freed.serves_again = address == block.address && freed.sort == sort;
            self.free.remove(&address);
            if let Some(numbers) = self.by_sort.get_mut(&freed.sort) {
                numbers.remove(&number);
            }
        }
    }
}

impl Visitor for Find<'_> {
    fn event(&mut self, record: &Record) {
        let event = &record.event;
        self.has_captures |= event.kind == Kind::CaptureBegin;
        if event.class.layer() != Layer::Tensor {
            return;
        }
        self.grows = event.kind == Kind::TensorAlloc && event.extra[1] > self.reserved;
        if event.extra[1] > 0 {
            self.reserved = event.extra[1];
        }
        self.stream = self.recording.stream(record).unwrap_or(0);
    }

    fn allocated(&mut self, block: &Block) {
        let sort = self.sort(block, self.stream);
        self.take(block, sort);
        if self.stream != 0 {
            self.streams.insert(block.address, self.stream);
        }
        if !std::mem::take(&mut self.grows) {
            return;
        }
        let Some(numbers) = self.by_sort.get(&sort) else {
            return;
        };
        let bytes = (numbers.len() as u64).saturating_mul(block.size);
        let worst = self.worst.entry(sort).or_default();
        if bytes > worst.0 {
            *worst = (bytes, numbers.iter().copied().collect());
        }
    }

    fn freed_unseen(&mut self, _: &Block, _: &Record) {}

    fn freed(&mut self, block: &Block, _: &Record) {
        let stream = self.streams.remove(&block.address).unwrap_or(0);
        let sort = self.sort(block, stream);
        let number = self.freed.len();
        self.freed.push(Freed {
            bytes: block.size,
            stack: block.stack,
            sort,
            serves_again: false,
        });
        self.free.insert(block.address, number);
        self.by_sort.entry(sort).or_default().insert(number);
    }
}
