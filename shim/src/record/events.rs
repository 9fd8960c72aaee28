//! What happened, into the trace: the one place that knows how the shim's facts become events.

use std::collections::HashSet;
use std::sync::{Mutex, Once, OnceLock};

use gpushim_core::mempool::{self, Stream};
use gpushim_core::pool::{Context, Freed, Gone, Grant, Source, Stamp};
use gpushim_core::trace::{Class, Condition, Cost, Event, Kind, Writer, flags};

use crate::base::{preloaded, process, thread};
use crate::cuda::captures;
use crate::memory::{allocator, memory_info, pools};
use crate::process::{background, facts};
use crate::record::{marks, stacks, timeline};

/// The trace of this process; `None` inside: off, or it could not be written.
static TRACE: OnceLock<Option<Writer>> = OnceLock::new();

/// Bytes of the ring that are made present ahead of their use each time the housekeeper comes by, at most:
/// 260,000 events.
const AHEAD: u64 = 16 << 20;

/// Facts that can wait for the trace to be opened: a process may load libraries for ever and never use memory.
const EARLY_MOST: usize = 256;

/// Facts that came before the trace.
static EARLY: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Opens the trace at the first event: a process that uses no CUDA memory leaves no file.
#[inline]
pub fn open() -> Option<&'static Writer> {
    match TRACE.get() {
        Some(writer) => writer.as_ref(),
        None => create(),
    }
}

#[cold]
fn create() -> Option<&'static Writer> {
    let mut first = false;
    let writer = TRACE.get_or_init(|| {
        first = true;
        process::start();
        let (path, options) = process::config().trace_file()?;
        match Writer::create(&path, &options) {
            Ok(writer) => Some(writer),
            Err(error) => {
                process::say(&format!(
                    "failed to create the trace {}: {error}; the program runs on without one",
                    path.display()
                ));
                None
            }
        }
    });
    let writer = writer.as_ref()?;
    if first {
        if let Ok(mut early) = EARLY.lock() {
            for (key, value) in early.drain(..) {
                writer.fact(&key, &value);
            }
        }
        facts::write(writer);
        stacks::start();
        marks::opened(writer);
        // Not in a library that came by dlopen and may go again.
        if preloaded::is_ours() {
            timeline::start(writer);
            background::start();
        }
    }
    Some(writer)
}

/// The trace, if it is open. For places that must not open it: under the pool's lock, in a lens.
#[inline]
pub fn opened() -> Option<&'static Writer> {
    TRACE.get().and_then(Option::as_ref)
}

/// Whether it is known that this process has no trace.
pub fn is_off() -> bool {
    TRACE.get().is_some_and(Option::is_none)
}

/// Adds a fact about the process, now or when the trace is opened.
pub fn fact(key: &str, value: &str) {
    if let Some(writer) = opened() {
        writer.fact(key, value);
    } else if !is_off()
        && let Ok(mut early) = EARLY.lock()
        && early.len() < EARLY_MOST
    {
        early.push((key.to_owned(), value.to_owned()));
    }
}

fn event(kind: Kind, class: Class) -> Event {
    Event {
        thread: thread::tid(),
        stack: marks::current(),
        ..Event::new(kind, class)
    }
}

#[inline]
fn capturing() -> u16 {
    if captures::any() { flags::CAPTURE } else { 0 }
}

/// A block that the pool handed out.
#[inline(always)]
pub fn granted(grant: &Grant) {
    let Some(writer) = open() else { return };
    let (flag, nanos) = match grant.source {
        Source::Hit => (flags::HIT, 0),
        Source::Ordered => (flags::ORDERED, 0),
        Source::Waited => (flags::WAITED, driver_ns()),
        Source::Grown => (flags::GROWN, driver_ns()),
    };
    let made = Event {
        flags: flag | capturing(),
        device: thread::with(|t| t.device.get()),
        address: grant.address,
        size: grant.requested,
        stack: stacks::of_allocation(writer, grant.requested),
        extra: [0, Cost::pack(nanos, grant.size)],
        ..event(Kind::Alloc, Class::Device)
    };
    writer.record_alloc_after(&made, grant.after.0);
}

/// A block that came back to the pool. Runs under the pool's lock. When that was.
#[inline(always)]
pub fn freed(freed: &Freed) -> Stamp {
    let Some(writer) = opened() else {
        return Stamp::default();
    };
    let ended = Event {
        flags: flags::HIT,
        device: freed.device as u8,
        address: freed.address,
        size: freed.requested,
        extra: [0, Cost::pack(0, freed.size)],
        ..event(Kind::Free, Class::Device)
    };
    Stamp(writer.record_free_at(&ended))
}

/// A stream's handle as programs write it: 0 for the legacy stream, and for none in particular.
#[inline]
fn as_named(stream: u64) -> u64 {
    match stream {
        Stream::LEGACY | Stream::EVERY => 0,
        handle => handle,
    }
}

/// A block that a pool of streams handed out.
#[inline(always)]
pub fn granted_on(grant: &Grant, class: Class, device: i32, stream: u64) {
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
        ..event(Kind::Alloc, class)
    };
    writer.record_alloc_after(&made, grant.after.0);
}

/// A block that came back to a pool of streams. Runs under that pool's lock. When that was.
#[inline(always)]
pub fn freed_on(freed: &mempool::Freed, class: Class, device: i32, stream: u64) -> Stamp {
    let Some(writer) = opened() else {
        return Stamp::default();
    };
    let ended = Event {
        flags: flags::HIT,
        device: device as u8,
        address: freed.address,
        size: freed.requested,
        extra: [as_named(stream), Cost::pack(0, freed.size)],
        ..event(Kind::Free, class)
    };
    Stamp(writer.record_free_at(&ended))
}

/// Nanoseconds that this thread's hook has spent in the driver so far; starts anew.
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
/// Returns the stack of its allocation for [`stays`].
pub fn leaving(class: Class, address: u64) -> u32 {
    let left = opened().and_then(|writer| writer.take_live(class, address));
    left.map_or(0, |left| left.stack)
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

/// A request that could not be met.
pub fn out_of_memory(class: Class, size: u64, result: u32, free: u64, total: u64) {
    let Some(writer) = open() else { return };
    writer.record(&Event {
        device: crate::cuda::context::device(),
        result: result as i16,
        stack: stacks::of_allocation(writer, u64::MAX),
        size,
        extra: [free, total],
        ..event(Kind::OutOfMemory, class)
    });
    pool_state(writer);
}

/// What the pools of the current device hold, after a request that could not be met. Nothing if no pool
/// serves the process.
fn pool_state(writer: &Writer) {
    let device = crate::cuda::context::device();
    if let Some(held) = memory_info::of_pools(device.into()) {
        writer.record(&Event {
            device,
            address: held.quarantined,
            size: held.allocated,
            extra: [held.reserved, held.largest_free],
            ..event(Kind::PoolState, Class::Device)
        });
    }
}

/// A context ended, and with it these blocks.
pub fn blocks_gone(context: Context, gone: &Gone) {
    let Some(writer) = opened() else { return };
    // The table is looked at as a whole: not for a context without blocks.
    if !gone.live.is_empty() {
        let live: HashSet<u64> = gone.live.iter().copied().collect();
        writer.drop_live(|event| {
            event.class == Class::Device
                && event.flags & flags::FORWARDED == 0
                && live.contains(&event.address)
        });
    }
    writer.record(&Event {
        address: context.0,
        size: gone.allocated,
        extra: [gone.reserved, 0],
        ..event(Kind::ContextGone, Class::Device)
    });
}

/// A context ended, and with it these bytes that were handed out and held.
pub fn context_gone(context: Context, allocated: u64, reserved: u64) {
    let Some(writer) = opened() else { return };
    writer.drop_live(|event| {
        let ours = matches!(event.class, Class::Device | Class::PoolAsync);
        ours && event.flags & flags::FORWARDED == 0 && !is_held(event.address)
    });
    writer.record(&Event {
        address: context.0,
        size: allocated,
        extra: [reserved, 0],
        ..event(Kind::ContextGone, Class::Device)
    });
}

/// Whether a pool holds the block at an address.
fn is_held(address: u64) -> bool {
    allocator::used().is_some_and(|pool| pool.find(address).is_some())
        || pools::owner(address).is_some_and(|entry| entry.pool.find(address).is_some())
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

/// The program had a stream-ordered pool give back what it held beyond so many bytes: that many. Recorded also if it
/// was nothing: the pool has looked at what is over, and replay does so too.
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

/// What a framework said of one of its tensors: `kind` is one of the `Tensor` kinds.
#[inline]
pub fn tensor(kind: Kind, device: u8, address: u64, size: u64, allocated: u64, reserved: u64) {
    let Some(writer) = open() else { return };
    let event = Event {
        device,
        address,
        size,
        extra: [allocated, reserved],
        ..event(kind, Class::Tensor)
    };
    match kind {
        Kind::TensorAlloc => writer.record_alloc(&Event {
            stack: stacks::of_allocation(writer, size),
            ..event
        }),
        Kind::TensorFree => {
            writer.record_free(&event);
        }
        // Rare, and worth a stack whatever sizes get one.
        _ => writer.record(&Event {
            stack: stacks::of_allocation(writer, u64::MAX),
            ..event
        }),
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

/// A thread has a name. False if there is no trace to tell.
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

/// What the driver said of a device, in bytes.
pub fn device_memory(device: i32, free: u64, total: u64) {
    let Some(writer) = opened() else { return };
    writer.record(&Event {
        device: u8::try_from(device).unwrap_or(Event::NO_DEVICE),
        size: total.saturating_sub(free),
        extra: [free, total],
        ..event(Kind::DeviceMemory, Class::Device)
    });
}

/// Code was loaded and took so many bytes of the current device; `None`: no context was current.
pub fn module_loaded(module: u64, bytes: Option<u64>) {
    // Without a context nothing is on a device: a program that only looks leaves no trace.
    let writer = if bytes.is_some() { open() } else { opened() };
    let Some(writer) = writer else { return };
    writer.record(&Event {
        device: bytes.map_or(Event::NO_DEVICE, |_| crate::cuda::context::device()),
        address: module,
        size: bytes.unwrap_or(0),
        ..event(Kind::ModuleLoad, Class::Device)
    });
}

/// What the housekeeper does for the trace, off everybody's path. True if it should come again soon: the
/// ring fills, and not all of it is present.
pub fn upkeep() -> bool {
    opened().is_some_and(|writer| {
        // Before anything else touches the file.
        say_condition(writer);
        writer.calibrate();
        stacks::upkeep(writer);
        let fills = timeline::poll();
        writer.keep_ahead(AHEAD) || fills
    })
}

/// Says once each what became of the trace's file.
fn say_condition(writer: &Writer) {
    static SHORT: Once = Once::new();
    static TRUNCATED: Once = Once::new();
    let path = writer.path().display();
    match writer.check() {
        Condition::Sound => {}
        Condition::Short => SHORT.call_once(|| {
            process::say(&format!(
                "the disk is full: the trace {path} keeps fewer events; the program runs on"
            ));
        }),
        Condition::Truncated => TRUNCATED.call_once(|| {
            process::say(&format!(
                "the trace {path} was truncated: nothing more is kept; the program runs on"
            ));
        }),
    }
}

/// The process ends: what the housekeeper would still have done for the trace.
pub fn finish() {
    if let Some(writer) = opened() {
        say_condition(writer);
        stacks::upkeep(writer);
        timeline::stop();
    }
}
