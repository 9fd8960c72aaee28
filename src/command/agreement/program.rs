//! Generated programs, with a plain model of the memory that they hold. The model knows no events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use gpushim_trace::{Class, Cost, Event, Kind, Layer, Trace, Writer, WriterOptions, flags};

/// Sums by device and name.
pub type Sums = BTreeMap<(u8, &'static str), i64>;

/// One thing that a program does.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    what: u8,
    sort: usize,
    slot: u64,
    device: u8,
    size: u64,
}

const MICROSECOND: Duration = Duration::from_micros(1);

/// Operations that programs may do besides allocating and freeing their own blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// No additional operation.
    Plain,
    /// Lose the event of a free, and end contexts.
    EndContexts,
    /// Free blocks from before the recording.
    FreeUnseen,
    /// Record more events than the ring holds.
    Wrap,
}

pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = (
        0..12_u8,
        0..SORTS.len(),
        0..6_u64,
        0..3_u8,
        1..2_000_000_u64,
    );
    let op = op.prop_map(|(what, sort, slot, device, size)| Op {
        what,
        sort,
        slot,
        device,
        size,
    });
    prop::collection::vec(op, 1..160)
}

/// Classes, and whether the driver hands them out itself.
const SORTS: [(Class, bool); 10] = [
    (Class::Device, false),
    (Class::Device, true),
    (Class::PoolAsync, false),
    (Class::PoolAsync, true),
    (Class::Pitched, true),
    (Class::Vmm, true),
    (Class::VmmMap, true),
    (Class::Host, true),
    (Class::Managed, true),
    (Class::Tensor, false),
];

/// Classes that belong to a layer.
pub fn classes(layer: Layer) -> impl Iterator<Item = Class> {
    let of_layer = SORTS
        .into_iter()
        .filter(move |(class, _)| class.layer() == layer);
    of_layer.map(|(class, _)| class)
}

#[derive(Clone, Copy)]
struct Held {
    sort: usize,
    device: u8,
    size: u64,
    block: u64,
}

/// A recorded program, and the true figures of its memory.
pub struct Ran {
    pub trace: Trace,
    /// Sums before the first readable event, then the sums after each readable event.
    pub sums: Vec<Sums>,
    /// Keeps the file until the end of the test.
    _dir: tempfile::TempDir,
}

struct Model {
    live: BTreeMap<u64, Held>,
    segments: BTreeMap<u64, (u8, u64)>,
    /// Sums of blocks that were freed and never allocated: they existed before the recording.
    unseen: Sums,
    /// Addresses that were ever used. Earlier blocks had an unused address once, too.
    used: BTreeSet<u64>,
    history: Vec<Sums>,
}

impl Model {
    fn sums(&self) -> Sums {
        let mut sums = Sums::new();
        for (key, bytes) in &self.unseen {
            sums.insert(*key, -bytes);
        }
        let mut add = |device, name, bytes| {
            *sums.entry((device, name)).or_default() += bytes as i64;
        };
        for held in self.live.values() {
            of(held, &mut |name, bytes| add(held.device, name, bytes));
        }
        for (device, bytes) in self.segments.values() {
            add(*device, "reserved", *bytes);
        }
        sums
    }
}

/// Adds a block to each sum that counts it.
fn of(held: &Held, add: &mut dyn FnMut(&'static str, u64)) {
    let (class, forwarded) = SORTS[held.sort];
    match class.layer() {
        Layer::Tensor => add("tensors", held.size),
        Layer::Device => {
            add("requested", held.size);
            add("allocated", held.block);
            if forwarded {
                add("reserved", held.block);
            }
            if matches!(class, Class::Device | Class::PoolAsync) {
                add("replayed", held.size);
            }
        }
        _ => {}
    }
}

fn address(sort: usize, device: u8, slot: u64) -> u64 {
    let of = match sort {
        0 => u64::from(device) + 1,
        sort => sort as u64 + 10,
    };
    of << 40 | slot << 24
}

fn context(device: u8) -> u64 {
    0xc000 + u64::from(device)
}

/// Runs a program, and records it in a trace.
pub fn run(ops: &[Op], may: May) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        // 64 events, or all.
        bytes: if may == May::Wrap { 4096 } else { 1 << 20 },
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    let mut model = Model {
        live: BTreeMap::new(),
        segments: BTreeMap::new(),
        unseen: Sums::new(),
        used: BTreeSet::new(),
        history: vec![Sums::new()],
    };
    for op in ops {
        step(&writer, &mut model, *op, may);
        // Snapshots have microseconds: two devices' events of one microsecond have no order there.
        let done = Instant::now();
        while done.elapsed() < 2 * MICROSECOND {
            std::hint::spin_loop();
        }
    }
    let trace = Trace::open(writer.path()).unwrap();
    let mut sums = model.history.split_off(trace.lost() as usize);
    for sums in &mut sums {
        for (key, bytes) in &model.unseen {
            *sums.entry(*key).or_default() += bytes;
        }
    }
    Ran {
        trace,
        sums,
        _dir: dir,
    }
}

fn step(writer: &Writer, model: &mut Model, op: Op, may: May) {
    let (class, forwarded) = SORTS[op.sort];
    let at = address(op.sort, op.device, op.slot);
    let is_tensor = class == Class::Tensor;
    let event = |kind, held: &Held| Event {
        device: held.device,
        address: at,
        size: held.size,
        flags: if forwarded {
            flags::FORWARDED
        } else {
            flags::HIT
        },
        extra: if is_tensor {
            [0, 0]
        } else {
            [0, Cost::pack(0, held.block)]
        },
        ..Event::new(kind, class)
    };
    let fresh = Held {
        sort: op.sort,
        device: op.device,
        size: op.size,
        block: if is_tensor {
            op.size
        } else {
            op.size.next_multiple_of(512)
        },
    };
    let is_live = model.live.contains_key(&at);
    let segment = |kind, size| Event {
        device: op.device,
        address: address(0, op.device, op.slot),
        size,
        extra: [context(op.device), 0],
        ..Event::new(kind, Class::Device)
    };
    match op.what {
        0..=4 if !is_live || may == May::EndContexts => {
            let kind = if is_tensor {
                Kind::TensorAlloc
            } else {
                Kind::Alloc
            };
            writer.record_alloc(&event(kind, &fresh));
            model.live.insert(at, fresh);
        }
        5..=8 if is_live || may == May::FreeUnseen && !model.used.contains(&at) => {
            let kind = if is_tensor {
                Kind::TensorFree
            } else {
                Kind::Free
            };
            let held = model.live.remove(&at).unwrap_or(fresh);
            if !is_live {
                let unseen = &mut model.unseen;
                of(&fresh, &mut |name, bytes| {
                    *unseen.entry((fresh.device, name)).or_default() += bytes as i64;
                });
            }
            writer.record_free(&event(kind, &held));
        }
        9 if !model.segments.contains_key(&address(0, op.device, op.slot)) => {
            writer.record(&segment(Kind::Reserve, 1 << 24));
            let at = address(0, op.device, op.slot);
            model.segments.insert(at, (op.device, 1 << 24));
        }
        10 => {
            let at = address(0, op.device, op.slot);
            let Some((_, size)) = model.segments.remove(&at) else {
                return;
            };
            writer.record(&segment(Kind::Release, size));
        }
        11 if may == May::EndContexts && op.slot == 0 => end_context(writer, model, op.device),
        _ => return,
    }
    model.used.insert(at);
    model.history.push(model.sums());
}

/// Ends a context, with its segments and the pool's blocks of `cudaMalloc`.
///
/// If there are any such blocks, the blocks that the driver itself handed out in the context end,
/// too.
fn end_context(writer: &Writer, model: &mut Model, device: u8) {
    let ends = |held: &Held, forwarded: bool| {
        let (class, from_driver) = SORTS[held.sort];
        let is_its = matches!(class, Class::Device | Class::Pitched) && held.device == device;
        is_its && from_driver == forwarded
    };
    let pooled = model.live.values().filter(|held| ends(held, false));
    let allocated: u64 = pooled.map(|held| held.block).sum();
    let segments = model.segments.values().filter(|(of, _)| *of == device);
    let reserved: u64 = segments.map(|(_, bytes)| bytes).sum();
    let is_gone = |held: &Held| ends(held, false) || allocated > 0 && ends(held, true);
    let gone: Vec<u64> = model
        .live
        .iter()
        .filter(|(_, held)| is_gone(held))
        .map(|(at, _)| *at)
        .collect();
    writer.drop_live(|event| event.class.layer() == Layer::Device && gone.contains(&event.address));
    model.live.retain(|_, held| !is_gone(held));
    model.segments.retain(|_, (of, _)| *of != device);
    writer.record(&Event {
        device,
        address: context(device),
        size: allocated,
        extra: [reserved, 0],
        ..Event::new(Kind::ContextGone, Class::Device)
    });
}
