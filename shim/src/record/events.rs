//! Writes events to the trace: the one place that knows how the shim's facts become events. Its callers pass the facts;
//! it queries only the driver.

use gpushim_alloc::Stream;
use gpushim_alloc::{Context, Freed, Grant, Source, Stamp};
use gpushim_trace::{Class, Cost, Event, Kind, Layer, Numbers, Removed, Writer, flags};

use crate::base::thread;
use crate::cuda::{captures, context};
use crate::record::shortages::{self, By};
use crate::record::trace::{open, opened};
use crate::record::{owners, pause, phase, stacks, usage};

/// An event of this thread.
pub(super) fn event(kind: Kind, class: Class) -> Event {
    Event {
        thread: thread::tid(),
        stack: phase::current(),
        ..Event::new(kind, class)
    }
}

#[inline]
fn capturing() -> u16 {
    if captures::any() { flags::CAPTURE } else { 0 }
}

/// A stream's handle as programs write it: 0 for the legacy stream, and for none in particular.
#[inline]
fn as_named(stream: u64) -> u64 {
    match stream {
        Stream::LEGACY | Stream::ALL => 0,
        handle => handle,
    }
}

/// The class of a block that is for no stream in particular, or for one.
pub fn family(for_all: bool) -> Class {
    match for_all {
        true => Class::Device,
        false => Class::PoolAsync,
    }
}

/// Records a block of `cudaMalloc` that came back to its pool. Runs under the pool's lock or a thread cache's. Returns when that was.
#[inline(always)]
pub fn freed(freed: &Freed, numbers: &Numbers) -> Stamp {
    freed_on(freed, Stream::ALL, numbers)
}

/// A block that a pool handed out; `numbers`: where the trace has the pool's blocks.
#[inline(always)]
pub fn granted_on(grant: &Grant, device: i32, stream: u64, numbers: &Numbers) {
    usage::grew(Layer::Device, device as u8, grant.requested);
    if pause::is_on() {
        return left_out();
    }
    let Some(writer) = open() else { return };
    let (flag, nanos) = match grant.source {
        Source::Hit => (flags::HIT, 0),
        Source::Ordered => (flags::ORDERED, driver_ns()),
        Source::Waited => (flags::WAITED, driver_ns()),
        Source::Grown => (flags::GROWN, driver_ns()),
    };
    let made = Event {
        flags: flag | capturing(),
        device: device as u8,
        address: grant.address,
        size: grant.requested,
        stack: stacks::of_allocation(writer, grant.requested),
        extra: [as_named(stream), Cost::pack(nanos, grant.size)],
        ..event(Kind::Alloc, family(stream == Stream::ALL))
    };
    writer.record_numbered_alloc(&made, (numbers, grant.number), grant.after.0);
}

/// Records a block that came back to a pool. Runs under that pool's lock or a thread cache's. Returns when that was.
#[inline(always)]
pub fn freed_on(freed: &Freed, stream: u64, numbers: &Numbers) -> Stamp {
    usage::shrank(Layer::Device, freed.device as u8, freed.requested);
    let Some(writer) = opened() else {
        return Stamp::default();
    };
    let ended = Event {
        flags: flags::HIT,
        device: freed.device as u8,
        address: freed.address,
        size: freed.requested,
        extra: [as_named(stream), Cost::pack(0, freed.size)],
        ..event(Kind::Free, family(freed.for_all))
    };
    let number = (numbers, freed.number);
    if pause::was_ever() {
        let taken = writer.take_numbered(ended.class, ended.address, number);
        return free_if_there(writer, &ended, taken);
    }
    Stamp(writer.record_numbered_free(&ended, number))
}

/// An allocation gets no event: what its hook has spent in the driver is not the next one's.
#[cold]
fn left_out() {
    driver_ns();
}

/// Records the end of a block that was taken out of the live table, if the trace has its beginning, see [`pause`].
/// Returns when that was.
#[cold]
fn free_if_there(writer: &Writer, ended: &Event, taken: Option<Removed>) -> Stamp {
    if stack_of(writer, taken).is_some() {
        writer.record_left(ended);
    }
    Stamp(writer.now())
}

/// The stack of the allocation of a block that was taken out of the live table; `None`: it was allocated in a pause.
fn stack_of(writer: &Writer, taken: Option<Removed>) -> Option<u32> {
    match taken {
        Some(block) => Some(block.stack),
        // It is not there either if there was no room for it.
        None => (!pause::was_ever() || writer.has_missed_blocks()).then_some(0),
    }
}

/// Nanoseconds that this thread's hook has spent in the driver so far; resets the count.
pub fn driver_ns() -> u64 {
    thread::with(|t| t.driver_ns.take())
}

/// Memory that the pool took from the driver or gave back.
pub fn segment(
    kind: Kind,
    class: Class,
    context: Context,
    device: Option<u8>,
    address: u64,
    bytes: u64,
) {
    let Some(writer) = open() else { return };
    writer.record(&Event {
        device: device.unwrap_or(Event::NO_DEVICE),
        address,
        size: bytes,
        extra: [context.0, 0],
        ..event(kind, class)
    });
}

/// Memory that the driver itself handed out or took back; what it takes back has [left](leaving) before.
pub fn forwarded(kind: Kind, class: Class, device: u8, address: u64, size: u64, stream: u64) {
    match kind {
        Kind::Alloc => usage::grew(class.layer(), device, size),
        Kind::Free => usage::shrank(class.layer(), device, size),
        _ => {}
    }
    if kind == Kind::Alloc && pause::is_on() {
        return left_out();
    }
    let Some(writer) = open() else { return };
    let event = Event {
        flags: flags::FORWARDED | capturing(),
        device,
        address,
        size,
        extra: [as_named(stream), Cost::pack(driver_ns(), size)],
        ..event(kind, class)
    };
    match kind {
        Kind::Alloc => writer.record_alloc(&Event {
            stack: stacks::of_allocation(writer, size),
            ..event
        }),
        Kind::Free => writer.record_left(&event),
        _ => writer.record(&event),
    }
}

/// The driver is asked to take memory back: from the moment at which it does, the address may be another's.
/// Returns the stack of its allocation for [`stays`]; `None` if the trace does not have it, as [`pause`] tells.
pub fn leaving(class: Class, address: u64) -> Option<u32> {
    match opened() {
        Some(writer) => stack_of(writer, writer.take_live(class, address)),
        None => (!pause::was_ever()).then_some(0),
    }
}

/// The driver took memory back that the trace does not have.
pub fn left(class: Class, device: u8, size: u64) {
    usage::shrank(class.layer(), device, size);
    left_out();
}

/// The driver refused to take memory back.
pub fn stays(class: Class, device: u8, address: u64, size: u64, stack: u32) {
    if let Some(writer) = opened() {
        writer.put_live(&Event {
            flags: flags::FORWARDED,
            device,
            address,
            size,
            stack,
            extra: [0, Cost::pack(0, size)],
            ..event(Kind::Alloc, class)
        });
    }
}

/// What the pools of a device hold, in bytes.
#[derive(Default)]
pub struct Held {
    /// Handed out, in blocks.
    pub allocated: u64,
    /// Held from the driver.
    pub reserved: u64,
    /// Freed, and waiting for captures and graphs.
    pub quarantined: u64,
    /// The largest free block of one pool.
    pub largest_free: u64,
}

/// A request that could not be met. `held` returns what the pools of a device hold; `None` if no pool serves the
/// process.
pub fn out_of_memory(
    class: Class,
    size: u64,
    result: u32,
    (free, total): (u64, u64),
    held: fn(i32) -> Option<Held>,
) {
    let Some(writer) = open() else { return };
    writer.record(&Event {
        device: context::device(),
        result: result as i16,
        stack: stacks::of_allocation(writer, u64::MAX),
        size,
        extra: [free, total],
        ..event(Kind::OutOfMemory, class)
    });
    pool_state(writer, held);
    owners::out_of_memory();
    shortages::note(By::Driver);
}

/// What the pools of the current device hold, after a request that could not be met.
fn pool_state(writer: &Writer, held: fn(i32) -> Option<Held>) {
    let device = context::device();
    if let Some(held) = held(device.into()) {
        writer.record(&Event {
            device,
            address: held.quarantined,
            size: held.allocated,
            extra: [held.reserved, held.largest_free],
            ..event(Kind::PoolState, Class::Device)
        });
    }
}

/// Takes blocks out of the live table; their bytes, in blocks.
fn drop_live(writer: &Writer, mut wanted: impl FnMut(&Event) -> bool) -> u64 {
    let mut bytes = 0_u64;
    writer.drop_live(|event| {
        let is_wanted = wanted(event);
        if is_wanted {
            bytes = bytes.saturating_add(event.cost().block.max(event.size));
        }
        is_wanted
    });
    bytes
}

/// Of the bytes that went with a context those that the trace has, given the blocks that it had.
fn in_trace(went: u64, dropped: u64) -> u64 {
    if pause::was_ever() {
        dropped.min(went)
    } else {
        went
    }
}

/// A context ended, and with it these bytes that were handed out and held. `is_held`: whether a pool still holds the
/// block at an address.
pub fn context_gone(
    context: Context,
    device: Option<i32>,
    (allocated, reserved): (u64, u64),
    is_held: impl Fn(u64) -> bool,
) {
    usage::lost(device, allocated);
    let Some(writer) = opened() else { return };
    let mut dropped = 0;
    // The table is looked at as a whole: not for a context without blocks.
    if allocated > 0 {
        dropped = drop_live(writer, |event| {
            let ours = matches!(event.class, Class::Device | Class::PoolAsync);
            ours && event.flags & flags::FORWARDED == 0 && !is_held(event.address)
        });
    }
    writer.record(&Event {
        device: device.map_or(Event::NO_DEVICE, |device| device as u8),
        address: context.0,
        size: in_trace(allocated, dropped),
        extra: [reserved, 0],
        ..event(Kind::ContextGone, Class::Device)
    });
}

/// A stream began to capture, or stopped with this graph (0: none).
pub fn capture(begins: bool, stream: u64, graph: u64) {
    let Some(writer) = open() else { return };
    let kind = if begins {
        Kind::CaptureBegin
    } else {
        Kind::CaptureEnd
    };
    writer.record(&Event {
        extra: [stream, graph],
        ..event(kind, Class::Device)
    });
}

/// The program trimmed a stream-ordered pool to `keep` bytes, which gave back `bytes`. Recorded even if nothing was
/// given back: the pool has checked which frees are complete, and replay must do the same.
pub fn trimmed_to(device: i32, keep: u64, bytes: u64) {
    let Some(writer) = opened() else { return };
    writer.record(&Event {
        size: bytes,
        device: device as u8,
        extra: [1, keep],
        ..event(Kind::Trim, Class::PoolAsync)
    });
}

/// The cache gave back this many bytes without being asked.
pub fn trimmed(bytes: u64) {
    if bytes == 0 {
        return;
    }
    let Some(writer) = opened() else { return };
    writer.record(&Event {
        size: bytes,
        ..event(Kind::Trim, Class::Device)
    });
}

/// What a framework said of one of its tensors: `kind` is one of the `Tensor` kinds, and `stream` a
/// [number](crate::record::tensor_streams).
#[inline]
pub fn tensor(
    kind: Kind,
    (device, stream): (u8, u8),
    address: u64,
    size: u64,
    allocated: u64,
    reserved: u64,
) {
    match kind {
        Kind::TensorAlloc => usage::grew(Layer::Tensor, device, size),
        Kind::TensorFree => usage::shrank(Layer::Tensor, device, size),
        _ => {}
    }
    if kind == Kind::TensorAlloc && pause::is_on() {
        return;
    }
    let Some(writer) = open() else { return };
    let stack = match kind {
        Kind::TensorAlloc => stacks::of_allocation(writer, size),
        Kind::TensorFree => phase::current(),
        // Rare, and worth a stack whatever sizes get one.
        _ => stacks::of_allocation(writer, u64::MAX),
    };
    // All of it at once: an event that is copied and changed is read again in pieces, which stalls.
    let event = Event {
        device,
        stream,
        thread: thread::tid(),
        stack,
        address,
        size,
        extra: [allocated, reserved],
        ..Event::new(kind, Class::Tensor)
    };
    match kind {
        Kind::TensorAlloc => writer.record_alloc(&event),
        Kind::TensorFree if pause::was_ever() => {
            let taken = writer.take_live(event.class, event.address);
            free_if_there(writer, &event, taken);
        }
        Kind::TensorFree => {
            writer.record_free(&event);
        }
        _ => {
            writer.record(&event);
            owners::out_of_memory();
        }
    }
}

/// A range or a mark: string ids of its name and its domain, its number, and its own node where that is not
/// what the thread's events have.
pub fn range(kind: Kind, name: u32, domain: u32, number: u64, node: Option<u32>) {
    let Some(writer) = opened() else { return };
    let event = event(kind, Class::Device);
    writer.record(&Event {
        stack: node.unwrap_or(event.stack),
        address: name.into(),
        size: number,
        extra: [domain.into(), 0],
        ..event
    });
}

/// Records the name of a thread. False if there is no trace.
pub fn thread_name(thread: u32, name: &str) -> bool {
    let Some(writer) = opened() else { return false };
    writer.record(&Event {
        thread,
        stack: 0,
        address: writer.intern(name).into(),
        ..event(Kind::ThreadName, Class::Device)
    });
    true
}
