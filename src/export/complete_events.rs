//! A run told from its beginning, and who holds memory in it.

use rustc_hash::FxHashMap;

use crate::recording::Recording;
use gpushim_trace::{Cost, Event, Kind, Layer, Record};

/// A run whose lost beginning is made up for.
pub(super) struct CompleteEvents<'a> {
    pub recording: &'a dyn Recording,
    /// The layer that memory is held in.
    pub layer: Layer,
    /// Allocations that no event tells of, in the order of time.
    before: Vec<Record>,
}

impl<'a> CompleteEvents<'a> {
    /// Reads the recording once.
    pub(super) fn of(recording: &'a dyn Recording) -> CompleteEvents<'a> {
        let mut layer = Layer::Device;
        let mut live: FxHashMap<(Layer, u64), ()> = FxHashMap::default();
        let mut before = Vec::new();
        let mut is_whole = recording.coverage().lost == 0;
        for record in recording.events() {
            let event = &record.event;
            let key = (event.class.layer(), event.address);
            match event.kind {
                Kind::Alloc | Kind::TensorAlloc if event.result == 0 => drop(live.insert(key, ())),
                Kind::Free | Kind::TensorFree
                    if event.result == 0 && live.remove(&key).is_none() =>
                {
                    before.push(Record {
                        ticket: 0,
                        ns: 0,
                        event: unseen(event),
                    });
                }
                // What goes without a free is not missing at the end.
                Kind::ContextGone => is_whole = false,
                _ => {}
            }
            if event.kind == Kind::TensorAlloc {
                layer = Layer::Tensor;
            }
        }
        let table = recording.live().filter(|_| !is_whole).unwrap_or_default();
        for block in table {
            let key = (block.event.class.layer(), block.event.address);
            if live.insert(key, ()).is_none() {
                before.push(Record {
                    ticket: 0,
                    ns: block.ns,
                    event: block.event,
                });
            }
        }
        before.sort_by_key(|record| record.ns);
        CompleteEvents {
            recording,
            layer,
            before,
        }
    }

    /// All events, with what came before them.
    pub(super) fn events(&self) -> impl Iterator<Item = Record> + '_ {
        let mut before = self.before.iter().copied().peekable();
        let mut events = self.recording.events().peekable();
        std::iter::from_fn(move || match (before.peek(), events.peek()) {
            (Some(first), Some(second)) if first.ns <= second.ns => before.next(),
            (Some(_), None) => before.next(),
            _ => events.next(),
        })
    }

    /// Nobody holds anything yet.
    pub(super) fn holders(&self) -> Holders {
        Holders {
            layer: self.layer,
            live: FxHashMap::default(),
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

/// A block that somebody holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub address: u64,
    /// Bytes asked for.
    pub size: u64,
    pub stack: u32,
    pub device: u8,
    pub stream: u64,
}

/// What an event does to who holds memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Made(Block),
    Dropped(Block),
}

/// Who holds memory now, in the layer of a [`CompleteEvents`].
pub(super) struct Holders {
    layer: Layer,
    live: FxHashMap<u64, Block>,
}

impl Holders {
    /// Takes an event into account; says what it changes.
    pub(super) fn feed(
        &mut self,
        story: &CompleteEvents<'_>,
        record: &Record,
        mut say: impl FnMut(Change),
    ) {
        let event = &record.event;
        let is_ours = event.class.layer() == self.layer && event.result == 0;
        match event.kind {
            Kind::Alloc | Kind::TensorAlloc if is_ours => {
                let block = Block {
                    address: event.address,
                    size: event.size,
                    stack: event.stack,
                    device: event.device,
                    stream: story.recording.stream(record).unwrap_or(0),
                };
                // An address that comes twice was freed in between.
                if let Some(before) = self.live.insert(event.address, block) {
                    say(Change::Dropped(before));
                }
                say(Change::Made(block));
            }
            Kind::Free | Kind::TensorFree if is_ours => {
                if let Some(block) = self.live.remove(&event.address) {
                    say(Change::Dropped(block));
                }
            }
            Kind::ContextGone if self.layer == Layer::Device && event.size > 0 => {
                self.live.retain(|_, block| {
                    let stays = block.device != event.device;
                    if !stays {
                        say(Change::Dropped(*block));
                    }
                    stays
                });
            }
            _ => {}
        }
    }

    /// The blocks that are held, in the order of addresses.
    pub(super) fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = self.live.values().copied().collect();
        blocks.sort_unstable_by_key(|block| block.address);
        blocks
    }
}
