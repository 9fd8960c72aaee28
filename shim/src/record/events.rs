//! Writes events to the trace: the only place that converts the shim's facts to events. Its callers
//! pass the facts; it queries only the driver.

use gpushim_alloc::Stream;
use gpushim_alloc::{Context, Freed, Grant, Source, Stamp};
use gpushim_config::Stacks;
use gpushim_trace::{Class, Cost, Event, Kind, Layer, Numbers, Removed, Writer, flags};

use crate::base::{settings, thread};
use crate::cuda::{captures, context};
use crate::record::shortages::{self, By};
use crate::record::trace::{open, opened};
use crate::record::{owners, pause, phase, stacks, trace, usage};

/// Makes an event of this thread.
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

/// Returns a stream's handle as programs write it: 0 for the legacy stream, and for no particular
/// stream.
#[inline]
fn as_named(stream: u64) -> u64 {
    match stream {
        Stream::LEGACY | Stream::ALL => 0,
        handle => handle,
    }
}

/// Returns the class of a block: for all streams, or for one.
pub fn family(for_all: bool) -> Class {
    match for_all {
        true => Class::Device,
        false => Class::PoolAsync,
    }
}

/// Records a free of a `cudaMalloc` block into its pool, and returns its time. Runs under the lock
/// of the pool or of a thread cache.
#[inline(always)]
pub fn freed(freed: &Freed, numbers: &Numbers) -> Stamp {
    freed_on(freed, Stream::ALL, numbers)
}

/// Records a block that a pool handed out. `numbers`: state of the pool's blocks in the trace.
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

/// Records a free of a block into its pool, and returns its time. Runs under the lock of the pool
/// or of a thread cache.
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

/// Drops the driver time of an allocation without an event, so that the next event does not get it.
#[cold]
fn left_out() {
    driver_ns();
}

/// Records the end of a block that was taken out of the live table, if the trace has its beginning:
/// see [`pause`]. Returns the time.
#[cold]
fn free_if_there(writer: &Writer, ended: &Event, taken: Option<Removed>) -> Stamp {
    if stack_of(writer, taken).is_some() {
        writer.record_left(ended);
    }
    Stamp(writer.now())
}

/// Returns the stack of the allocation of a block that was taken out of the live table. `None`:
/// allocated in a pause.
fn stack_of(writer: &Writer, taken: Option<Removed>) -> Option<u32> {
    match taken {
        Some(block) => Some(block.stack),
        // A block is also missing there if the table had no room for it.
        None => (!pause::was_ever() || writer.has_missed_blocks()).then_some(0),
    }
}

/// Returns the nanoseconds that this thread's hook has spent in the driver so far, and resets the
/// count.
pub fn driver_ns() -> u64 {
    thread::with(|t| t.driver_ns.take())
}

/// Records memory that a pool took from the driver or gave back.
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

/// Records memory that the driver itself handed out or freed. A free is preceded by [`leaving`].
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

/// Takes memory out of the live table before the driver frees it: afterwards the address may be in
/// use again. Returns the stack of its allocation, for [`stays`]. `None`: the trace does not have
/// the allocation, see [`pause`].
pub fn leaving(class: Class, address: u64) -> Option<u32> {
    match opened() {
        Some(writer) => stack_of(writer, writer.take_live(class, address)),
        None => (!pause::was_ever()).then_some(0),
    }
}

/// Counts a free by the driver of memory that the trace does not have.
pub fn left(class: Class, device: u8, size: u64) {
    usage::shrank(class.layer(), device, size);
    left_out();
}

/// Records the free of forwarded memory that went with its context.
pub fn ended(class: Class, device: u8, address: u64, size: u64) {
    usage::shrank(class.layer(), device, size);
    if let Some(writer) = opened() {
        writer.record_left(&Event {
            flags: flags::FORWARDED | flags::ENDED,
            device,
            address,
            size,
            extra: [0, Cost::pack(0, size)],
            ..event(Kind::Free, class)
        });
    }
}

/// Puts memory into the live table again whose free the driver refused.
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

/// Bytes that the pools of a device hold.
#[derive(Default)]
pub struct Held {
    /// Bytes of the blocks that are handed out.
    pub allocated: u64,
    /// Bytes held from the driver.
    pub reserved: u64,
    /// Bytes that were freed, and wait for captures and graphs.
    pub quarantined: u64,
    /// Bytes of the largest free block of one pool.
    pub largest_free: u64,
}

/// Records a request that failed. `held` returns the bytes that the pools of a device hold; `None`
/// if no pool serves the process.
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

/// Records the bytes that the pools of the current device hold, after a request that failed.
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

/// Takes blocks out of the live table. Returns the sum of their blocks' bytes.
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

/// Returns the part of a context's lost bytes that the trace has. `dropped`: bytes of its blocks in
/// the trace.
fn in_trace(went: u64, dropped: u64) -> u64 {
    if pause::was_ever() {
        dropped.min(went)
    } else {
        went
    }
}

/// Records the end of a context, with the bytes that were handed out and held there. `is_held`:
/// true if a pool still holds the block at an address.
pub fn context_gone(
    context: Context,
    device: Option<i32>,
    (allocated, reserved): (u64, u64),
    is_held: impl Fn(u64) -> bool,
) {
    usage::lost(device, allocated);
    let Some(writer) = opened() else { return };
    let mut dropped = 0;
    // Without blocks in the context, the search of the whole table is skipped.
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

/// Records that a stream began to capture, or stopped with this graph (0: none).
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

/// Records that the program trimmed a stream-ordered pool to `keep` bytes, and that the pool gave
/// back `bytes`. Recorded even for 0 bytes: the pool has checked its frees for complete work, and
/// replay must do the same.
pub fn trimmed_to(device: i32, keep: u64, bytes: u64) {
    let Some(writer) = opened() else { return };
    writer.record(&Event {
        size: bytes,
        device: device as u8,
        extra: [1, keep],
        ..event(Kind::Trim, Class::PoolAsync)
    });
}

/// Records that the cache gave back this many bytes by itself.
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

/// Prefetches the memory that the record of a tensor writes, for a caller that works before it.
#[inline]
pub fn fetch_tensor(device: u8, address: u64) {
    if let Some(writer) = opened() {
        writer.prefetch(&Event {
            device,
            address,
            ..Event::new(Kind::TensorAlloc, Class::Tensor)
        });
    }
}

/// Records the allocation or the free of a framework's tensor. `kind` is one of these two, and
/// `stream` a [number](crate::record::tensor_streams). `begun`: ticks of the announcement's begin, if
/// nothing since may have taken long. They were read after a fence.
#[inline]
pub fn tensor(
    kind: Kind,
    (device, stream): (u8, u8),
    address: u64,
    size: u64,
    allocated: u64,
    reserved: u64,
    begun: Option<u64>,
) {
    let is_free = kind == Kind::TensorFree;
    match is_free {
        true => usage::shrank(Layer::Tensor, device, size),
        false => usage::grew(Layer::Tensor, device, size),
    }
    if !is_free && pause::is_on() {
        return;
    }
    let begun = begun.filter(|_| trace::is_ready());
    let Some(writer) = open() else { return };
    let stack = match is_free {
        true => phase::current(),
        false => stacks::of_allocation(writer, size),
    };
    // A stack that is not known yet takes long.
    let begun = begun.filter(|_| is_free || settings::config().stacks == Stacks::Off);
    let ticks = begun.unwrap_or_else(|| writer.now());
    // Written at once: an event that is copied and changed is read again in pieces, which stalls
    // the processor.
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
    if !is_free {
        writer.record_alloc_at(&event, ticks);
    } else if pause::was_ever() {
        let taken = writer.take_live(event.class, event.address);
        free_if_there(writer, &event, taken);
    } else {
        writer.record_free_at(&event, ticks);
    }
}

/// Records that a framework could not allocate a tensor.
pub fn tensor_out_of_memory((device, stream): (u8, u8), size: u64, allocated: u64, reserved: u64) {
    let Some(writer) = open() else { return };
    writer.record(&Event {
        device,
        stream,
        thread: thread::tid(),
        // Rare, so that each gets a stack, whatever the setting for sizes.
        stack: stacks::of_allocation(writer, u64::MAX),
        size,
        extra: [allocated, reserved],
        ..Event::new(Kind::TensorOutOfMemory, Class::Tensor)
    });
    owners::out_of_memory();
}

/// Records a range or a mark: string ids of its name and its domain, and its number. `node`: its
/// own node, if it differs from the thread's.
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
