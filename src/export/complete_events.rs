//! A run with its lost beginning reconstructed, and the stacks that hold memory in it.

use rustc_hash::FxHashMap;

use crate::ledger::{self, Block, Ledger, Segment};
use crate::recording::Recording;
use gpushim_trace::{Cost, Event, Kind, Layer, Record};

/// A run whose lost beginning is reconstructed.
pub(super) struct CompleteEvents<'a> {
    pub recording: &'a dyn Recording,
    /// The layer that memory is held in.
    pub layer: Layer,
    /// True if the layer's blocks are cut from driver memory that the recording has, too.
    is_below: bool,
    /// The device of events that name none.
    pub only: Option<u8>,
    /// Allocations without an event, in the order of time.
    before: Vec<Record>,
}

impl<'a> CompleteEvents<'a> {
    /// Reads the recording once.
    pub(super) fn of(recording: &'a dyn Recording) -> CompleteEvents<'a> {
        let mut layer = Layer::Device;
        let mut ledger = Ledger::new(None);
        let mut before: Vec<Record> = Vec::new();
        let mut has_driver = false;
        let mut is_whole = recording.coverage().lost == 0;
        for record in recording.events() {
            let event = &record.event;
            ledger.apply(&record, &mut |change| match change {
                ledger::Change::Allocated(block) => {
                    has_driver |= block.class.layer() == Layer::Device;
                }
                ledger::Change::FreedUnseen(_) => before.push(Record {
                    ticket: 0,
                    ns: 0,
                    event: unseen(event),
                }),
                _ => {}
            });
            // Blocks that end with a context are not missing at the end.
            is_whole &= event.kind != Kind::ContextGone;
            if event.kind == Kind::TensorAlloc {
                layer = Layer::Tensor;
            }
        }
        let table = recording.live().filter(|_| !is_whole).unwrap_or_default();
        let is_known = |event: &Event| {
            let live = ledger.live(event.class.layer());
            live.contains_key(&event.address)
        };
        let missing = table.into_iter().filter(|one| !is_known(&one.event));
        before.extend(missing.map(|one| Record {
            ticket: 0,
            ns: one.ns,
            event: one.event,
        }));
        before.sort_by_key(|record| record.ns);
        has_driver |= (before.iter()).any(|record| record.event.class.layer() == Layer::Device);
        CompleteEvents {
            recording,
            layer,
            is_below: layer == Layer::Tensor && has_driver,
            only: ledger.other_only().flatten(),
            before,
        }
    }

    /// All events, preceded by the reconstructed allocations.
    pub(super) fn events(&self) -> impl Iterator<Item = Record> + '_ {
        let mut before = self.before.iter().copied().peekable();
        let mut events = self.recording.events().peekable();
        std::iter::from_fn(move || match (before.peek(), events.peek()) {
            (Some(first), Some(second)) if first.ns <= second.ns => before.next(),
            (Some(_), None) => before.next(),
            _ => events.next(),
        })
    }

    /// The device that an event is of.
    pub(super) fn device(&self, event: &Event) -> u8 {
        match self.only {
            Some(only) if event.device == Event::NO_DEVICE => only,
            _ => event.device,
        }
    }

    /// Before the first of them, when nothing is held yet.
    pub(super) fn holders(&self) -> Holders {
        Holders {
            ledger: Ledger::new(self.only),
            layer: self.layer,
            is_below: self.is_below,
            streams: FxHashMap::default(),
        }
    }
}

/// The allocation that a free without one must have had.
fn unseen(free: &Event) -> Event {
    let mut event = Event {
        flags: free.flags,
        stack: 0,
        ..*free
    };
    if free.kind == Kind::TensorFree {
        event.kind = Kind::TensorAlloc;
        event.extra[0] = free.extra[0].saturating_add(free.size);
    } else {
        event.kind = Kind::Alloc;
        event.extra[1] = Cost::pack(0, free.cost().block);
    }
    event
}

/// Change of the holders of memory by an event, and of the memory below them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// A block that is new, and its stream.
    Made(Block, u64),
    Dropped(Block, u64),
    /// A segment and its stream.
    Taken(Segment, u64),
    Given(Segment),
}

impl Change {
    /// The device that it is of.
    pub(super) fn device(&self) -> u8 {
        match self {
            Change::Made(block, _) | Change::Dropped(block, _) => block.device,
            Change::Taken(segment, _) | Change::Given(segment) => segment.device,
        }
    }
}

/// The live blocks in the layer of a [`CompleteEvents`].
pub(super) struct Holders {
    ledger: Ledger,
    layer: Layer,
    is_below: bool,
    /// The streams of blocks that were not allocated on the default one, by address.
    streams: FxHashMap<u64, u64>,
}

impl Holders {
    /// Applies an event. Calls `say` with each change.
    pub(super) fn feed(
        &mut self,
        story: &CompleteEvents<'_>,
        record: &Record,
        mut say: impl FnMut(Change),
    ) {
        let Holders {
            ledger,
            layer,
            is_below,
            streams,
        } = self;
        let stream = || story.recording.stream(record).unwrap_or(0);
        let only = story.only.unwrap_or(Event::NO_DEVICE);
        let segment = |block: &Block| {
            block.is_segment(*is_below).then_some(Segment {
                address: block.address,
                size: block.size,
                device: match block.device {
                    Event::NO_DEVICE => only,
                    device => device,
                },
                context: 0,
            })
        };
        // Memory below the blocks is allocated before them and freed after them.
        ledger.apply(record, &mut |change| match change {
            ledger::Change::Allocated(block) => {
                if let Some(segment) = segment(block) {
                    say(Change::Taken(segment, stream()));
                }
                if block.class.layer() == *layer {
                    let stream = stream();
                    if stream != 0 {
                        streams.insert(block.address, stream);
                    }
                    say(Change::Made(*block, stream));
                }
            }
            ledger::Change::Freed(block) => {
                if block.class.layer() == *layer {
                    let stream = streams.remove(&block.address).unwrap_or(0);
                    say(Change::Dropped(*block, stream));
                }
                if let Some(segment) = segment(block) {
                    say(Change::Given(segment));
                }
            }
            ledger::Change::Reserved(one) if !*is_below => say(Change::Taken(*one, stream())),
            ledger::Change::Released(one) if !*is_below => say(Change::Given(*one)),
            // Memory that ended unseen with a context has no address.
            ledger::Change::ReleasedUnseen(one) if !*is_below && one.address != 0 => {
                say(Change::Given(*one));
            }
            _ => {}
        });
    }

    /// The blocks that are held with their streams, in the order of addresses.
    pub(super) fn blocks(&self) -> Vec<(Block, u64)> {
        let live = self.ledger.live(self.layer).values();
        let stream = |block: &Block| self.streams.get(&block.address).copied();
        let mut blocks: Vec<(Block, u64)> = live
            .map(|block| (*block, stream(block).unwrap_or(0)))
            .collect();
        blocks.sort_unstable_by_key(|(block, _)| block.address);
        blocks
    }
}
