//! The real driver, as pools call it: memory in pieces and in whole allocations, and events of
//! streams.

use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use gpushim_alloc::gate::{self, Pass};
use gpushim_alloc::{Context, Driver, Home, PoolId, Stream};
use gpushim_trace::{Class, Kind};

use crate::base::thread;
use crate::cuda::captures::{self, relaxed};
use crate::cuda::context;
use crate::cuda::device::{Cuda, Event, enter as enter_context, unless_ended};
use crate::cuda::functions::{self, real, slots};
use crate::cuda::types::{
    CAPTURE_UNSUPPORTED, CONTEXT_IS_DESTROYED, CUresult, NOT_FOUND, OUT_OF_MEMORY, SUCCESS, check,
};
use crate::memory::limit::{self, Place};
use crate::memory::{
    context_drain, make_room, peer_access, peer_processes, physical, reservations,
};
use crate::record::events;

/// `CU_MEM_ACCESS_FLAGS_PROT_NONE` and `..._PROT_READWRITE`.
const NONE: u32 = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE as u32;
const READ_WRITE: u32 = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as u32;

/// Size in bytes from which new memory is requested only if the device has as much free. The driver
/// gives it in many pieces: a failure in the middle would leave the pool with the earlier pieces.
const LARGE: u64 = 64 << 20;

/// Bytes that the driver needs itself. A refusal is no lack of memory if the request, a sixteenth
/// of it and this many bytes are free together.
const PLENTY: u64 = 16 << 20;

/// The driver's `CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID`.
const HOST_NODE: i32 = 134;

/// Free bytes of a device that are not promised to elastic segments: the driver needs some itself.
const MARGIN: u64 = 16 << 20;

/// Longest brief wait for work of the device. The work may itself wait for the calling thread.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two checks, and the time after the start of a wait in which checks follow each
/// other without a pause.
const PAUSE: Duration = Duration::from_micros(20);
const EAGER: Duration = Duration::from_micros(200);

/// The driver's `CUmemAccessDesc`, with its enums as C integers.
#[repr(C)]
struct Access {
    /// Always `CU_MEM_LOCATION_TYPE_DEVICE`.
    kind: u32,
    device: i32,
    flags: u32,
}

fn access(address: u64, bytes: u64, devices: &[i32], flags: u32) -> Result<(), CUresult> {
    let wanted: Vec<Access> = devices
        .iter()
        .map(|&device| Access {
            kind: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as u32,
            device,
            flags,
        })
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    // SAFETY: the descriptions live through the call and are as many as it is told.
    check(thread::timed(|| unsafe {
        real::cuMemSetAccess(
            address,
            bytes as usize,
            wanted.as_ptr().cast(),
            wanted.len(),
        )
    }))
}

/// True for an error that says nothing about the call that returned it: a context or the driver is
/// gone, or earlier work failed.
fn is_of_context(error: CUresult) -> bool {
    // Not initialised, deinitialised; no context; graphics, hardware; launches that failed;
    // captures.
    matches!(error, 3 | 4 | 46 | 201 | 214 | 226 | 700..=799 | 900..=999)
}

/// Returns the NUMA node of the host that is nearest to a device; 0 if the driver does not say.
fn host_node(device: i32) -> i32 {
    let mut node = 0;
    // SAFETY: `node` is ours to write.
    let ask = || unsafe { real::cuDeviceGetAttribute(&mut node, HOST_NODE, device) };
    match thread::call(ask) {
        SUCCESS => node.max(0),
        _ => 0,
    }
}

/// Records a segment that the driver gave or gets back.
fn segment(kind: Kind, device: i32, address: u64, bytes: u64) {
    let ordinal = u8::try_from(device).ok();
    events::segment(kind, Class::PoolAsync, Context(0), ordinal, address, bytes);
}

impl Driver for Cuda {
    type Error = CUresult;
    type Event = Event;
    type Admission = limit::Advance;

    const OUT_OF_MEMORY: CUresult = OUT_OF_MEMORY;

    fn is_out_of_memory(error: CUresult) -> bool {
        error == OUT_OF_MEMORY
    }

    fn is_refusal(error: CUresult) -> bool {
        !is_of_context(error) && error != OUT_OF_MEMORY
    }

    fn has_plenty(&self, device: i32, bytes: u64) -> bool {
        let enough = bytes.saturating_add(bytes / 16).saturating_add(PLENTY);
        limit::fits(device, bytes) && self.free_bytes(device).is_some_and(|free| free >= enough)
    }

    fn unreserve(&self, address: u64, bytes: u64) {
        reservations::remove(address);
        // Addresses whose free is refused stay reserved until the process ends.
        // SAFETY: the pool has nothing mapped there, and gives the addresses back once.
        let _ = thread::timed(|| unsafe { real::cuMemAddressFree(address, bytes as usize) });
    }

    fn reserve(&self, _: i32, bytes: u64) -> Result<u64, CUresult> {
        let mut address = 0;
        // SAFETY: `address` is ours to write.
        check(thread::timed(|| unsafe {
            real::cuMemAddressReserve(&mut address, bytes as usize, 0, 0, 0)
        }))?;
        reservations::add(address, bytes);
        Ok(address)
    }

    fn create(&self, device: i32, bytes: u64) -> Result<u64, CUresult> {
        let handle = physical::create(device, bytes)?;
        segment(Kind::Reserve, device, handle, bytes);
        Ok(handle)
    }

    fn destroy(&self, device: i32, handle: u64, bytes: u64) {
        segment(Kind::Release, device, handle, bytes);
        physical::destroy(handle);
    }

    fn create_on_host(&self, device: i32, bytes: u64) -> Result<u64, CUresult> {
        let handle = physical::create_on_host(device, host_node(device), bytes)?;
        events::forwarded(Kind::Alloc, Class::Host, device as u8, handle, bytes, 0);
        Ok(handle)
    }

    fn destroy_on_host(&self, device: i32, handle: u64, bytes: u64) {
        let (ordinal, in_trace) = (device as u8, events::leaving(Class::Host, handle));
        physical::destroy_on_host(handle);
        match in_trace {
            Some(_) => events::forwarded(Kind::Free, Class::Host, ordinal, handle, bytes, 0),
            None => events::left(Class::Host, ordinal, bytes),
        }
    }

    fn room(&self, device: i32) -> u64 {
        let free = self.free_bytes(device).unwrap_or(0);
        let room = free.saturating_sub(MARGIN);
        limit::free(device).map_or(room, |free| room.min(free))
    }

    fn make_room_elsewhere(&self, device: i32, bytes: u64) -> bool {
        peer_processes::make_room(device, bytes)
    }

    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), CUresult> {
        // SAFETY: the pool reserved the addresses and has nothing mapped there.
        check(thread::timed(|| unsafe {
            real::cuMemMap(address, bytes as usize, 0, handle, 0)
        }))
    }

    fn allow(&self, address: u64, bytes: u64, devices: &[i32]) -> Result<(), CUresult> {
        access(address, bytes, devices, READ_WRITE)
    }

    fn forbid(&self, address: u64, bytes: u64, devices: &[i32]) -> Result<(), CUresult> {
        access(address, bytes, devices, NONE)
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), CUresult> {
        // SAFETY: the pool mapped this, and knows that no work uses the address any more.
        check(thread::timed(|| unsafe {
            real::cuMemUnmap(address, bytes as usize)
        }))
    }

    fn allocate(&self, home: Home, bytes: u64) -> Result<u64, CUresult> {
        let context = home.context;
        let _pass = enter_context(context)?;
        let device = match limit::limit() {
            Some(_) => self.ordinal_of(context)?,
            None => 0,
        };
        let claim = limit::reserve(device, bytes).ok_or(OUT_OF_MEMORY)?;
        let mut address = 0;
        let result = thread::timed(|| {
            context::with(context, || {
                // SAFETY: `address` is ours to write.
                relaxed(|| unsafe { real::cuMemAlloc_v2(&mut address, bytes as usize) })
            })
        })?;
        check(result)?;
        claim.keep(Place::of_block(context, address, bytes), bytes);
        self.whole_segment(Kind::Reserve, context, address, bytes);
        Ok(address)
    }

    fn release(&self, home: Home, address: u64, bytes: u64) -> Result<(), CUresult> {
        let context = home.context;
        let _pass = gate::enter_since(context, home.born).ok_or(CONTEXT_IS_DESTROYED)?;
        // Recorded first: once the driver has the memory, another thread's allocation may get the
        // same address.
        self.whole_segment(Kind::Release, context, address, bytes);
        let result = check(thread::timed(|| {
            context::with(context, || {
                // SAFETY: the pool releases what `allocate` returned, once.
                relaxed(|| unsafe { real::cuMemFree_v2(address) })
            })
        })?);
        limit::give(Place::of_block(context, address, bytes));
        result
    }

    fn memory_info(&self, device: i32) -> Option<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are ours to write.
        let ask = || unsafe { real::cuMemGetInfo_v2(&mut free, &mut total) };
        let asked = physical::on_device(device, || thread::timed(ask));
        (asked == Ok(SUCCESS)).then_some((free as u64, total as u64))
    }

    fn record(&self, stream: Stream) -> Result<Event, CUresult> {
        let here = stream.handle != Stream::PER_THREAD || stream.thread == thread::serial();
        if !here {
            return self.record_context(stream.context);
        }
        if stream.handle == Stream::ALL {
            return match stream.context {
                Context(0) => self.record_device(stream.thread as i32),
                context => self.record_all(context),
            };
        }
        let _pass = enter(stream)?;
        let event = self.event(stream.context)?;
        // SAFETY: both are live and of the same context.
        let record = || unsafe { real::cuEventRecord(event.raw(), stream.handle as *mut _) };
        let result = on_stream(stream, || thread::call(record))?;
        if result != SUCCESS {
            self.put_back(event);
        }
        check(result).map(|()| event)
    }

    fn record_beside(&self, stream: Stream) -> Result<Event, CUresult> {
        // The default streams take part in captures of other streams.
        if stream.handle <= Stream::PER_THREAD || stream.handle == Stream::ALL {
            return Err(NOT_FOUND);
        }
        // A capture that began between the query and the record would contain the event. The next
        // query of the event would invalidate that capture.
        let _pass = captures::enter_stream(stream.context, stream.handle)?;
        let mut status = 0;
        // SAFETY: `status` is ours to write, and the stream is live.
        let ask = || unsafe { real::cuStreamIsCapturing(stream.handle as *mut _, &mut status) };
        check(thread::call(ask))?;
        if status != 0 {
            return Err(NOT_FOUND);
        }
        relaxed(|| self.record(stream))
    }

    fn drain(&self, stream: Stream) -> Result<(), CUresult> {
        let contexts = match stream.context {
            Context(0) => peer_access::on(stream.thread as i32),
            context => peer_access::of(context)
                .into_iter()
                .chain([context])
                .collect(),
        };
        contexts.into_iter().try_for_each(context_drain::context)
    }

    fn order(&self, stream: Stream, event: Event) -> Result<(), CUresult> {
        for other in companions(event) {
            self.order_after(stream, other)?;
        }
        self.order_after(stream, event)
    }

    fn is_complete(&self, event: Event) -> Result<bool, CUresult> {
        for other in companions(event) {
            if !self.has_completed(other)? {
                return Ok(false);
            }
        }
        self.has_completed(event)
    }

    fn wait(&self, event: Event) -> Result<(), CUresult> {
        for other in companions(event) {
            self.wait_for(other)?;
        }
        self.wait_for(event)
    }

    fn wait_briefly(&self, event: Event) -> Result<(), CUresult> {
        let begun = Instant::now();
        // The driver's own wait has no time limit.
        while !self.is_complete(event)? {
            match begun.elapsed() {
                long if long > PATIENCE => return Err(OUT_OF_MEMORY),
                short if short < EAGER => yield_now(),
                _ => sleep(PAUSE),
            }
        }
        Ok(())
    }

    fn retire(&self, event: Event) {
        if peer_access::any() {
            for other in peer_access::part(event) {
                self.put_back(other);
            }
        }
        self.put_back(event);
    }

    fn admit(&self, device: i32, bytes: u64) -> Option<limit::Advance> {
        let has_it = || bytes < LARGE || self.free_bytes(device).is_none_or(|free| free >= bytes);
        limit::Advance::of(device, bytes).filter(|_| has_it())
    }

    fn make_room(&self, asking: PoolId, waits: bool) -> bool {
        make_room::release_broken();
        make_room::trim(Some(asking), Some(asking.device), waits) > 0
    }
}

/// Begins a call on a stream. Work on a default stream invalidates the captures of its context's
/// other streams.
fn enter(stream: Stream) -> Result<Pass, CUresult> {
    if stream.handle > Stream::PER_THREAD {
        gate::enter(stream.context).ok_or(CONTEXT_IS_DESTROYED)
    } else {
        captures::enter(stream.context, u64::MAX)
    }
}

/// Runs a call on a stream. A default stream's handle has its meaning only in the stream's context.
fn on_stream<R>(stream: Stream, f: impl FnOnce() -> R) -> Result<R, CUresult> {
    if stream.handle > Stream::PER_THREAD {
        return Ok(f());
    }
    context::with(stream.context, f)
}

/// Returns the events in other contexts that belong to one event.
fn companions(event: Event) -> Vec<Event> {
    if peer_access::any() {
        peer_access::companions(event)
    } else {
        Vec::new()
    }
}

impl Cuda {
    /// Returns free bytes of a device by the driver's count. `None`: the driver's call failed.
    pub(super) fn free_bytes(&self, device: i32) -> Option<u64> {
        self.memory_info(device).map(|(free, _)| free)
    }

    /// Records a driver allocation that a pool got or gave back.
    fn whole_segment(&self, kind: Kind, context: Context, address: u64, bytes: u64) {
        let known = self.known_ordinal(context);
        let known = known.and_then(|device| u8::try_from(device).ok());
        events::segment(kind, Class::Device, context, known, address, bytes);
    }

    /// Makes a stream wait for one event.
    fn order_after(&self, stream: Stream, event: Event) -> Result<(), CUresult> {
        if stream.handle == Stream::ALL {
            // Every context that may use the memory from now on waits.
            if peer_access::any() {
                for other in peer_access::of(stream.context) {
                    self.order_in(other, event)?;
                }
            }
            return self.order_in(stream.context, event);
        }
        let Some(_lives) = unless_ended(event.enter())? else {
            return Ok(());
        };
        let _pass = enter(stream)?;
        // SAFETY: both are live.
        let wait = || unsafe { real::cuStreamWaitEvent(stream.handle as *mut _, event.raw(), 0) };
        check(on_stream(stream, || thread::call(wait))?)
    }

    /// Records an event for all work that was submitted to a device.
    ///
    /// # Errors
    /// The driver's; [`CONTEXT_IS_DESTROYED`] if the device has no context, so that its work is
    /// complete.
    fn record_device(&self, device: i32) -> Result<Event, CUresult> {
        let mut contexts = peer_access::on(device);
        while let Some(context) = contexts.pop() {
            match self.record_context(context) {
                Err(CONTEXT_IS_DESTROYED) => {}
                recorded => return self.accompany(recorded?, contexts),
            }
        }
        Err(CONTEXT_IS_DESTROYED)
    }

    /// Records an event for all work that may use the memory of a context.
    fn record_all(&self, context: Context) -> Result<Event, CUresult> {
        let event = self.record_context(context)?;
        match peer_access::any() {
            true => self.accompany(event, peer_access::of(context)),
            false => Ok(event),
        }
    }

    /// Adds events of other contexts to an event.
    fn accompany(&self, event: Event, contexts: Vec<Context>) -> Result<Event, CUresult> {
        let mut others = Vec::new();
        for other in contexts {
            match self.record_context(other) {
                Ok(event) => others.push(event),
                Err(CONTEXT_IS_DESTROYED) => {}
                // After a capture whose thread has ended, the driver refuses a context's events for
                // ever.
                Err(CAPTURE_UNSUPPORTED)
                    if !captures::is_in(other) && context_drain::context(other).is_ok() => {}
                Err(error) => {
                    let all = others.into_iter().chain([event]);
                    all.for_each(|event| self.put_back(event));
                    return Err(error);
                }
            }
        }
        peer_access::accompany(event, others);
        Ok(event)
    }

    /// Records an event for all work that was submitted to a context.
    fn record_context(&self, context: Context) -> Result<Event, CUresult> {
        if functions::address(&slots::cuCtxRecordEvent).is_some()
            && let Some(event) = self.record_in(context)?
        {
            return Ok(event);
        }
        // Drivers before CUDA 12.5 have no such event: after a wait, any event will do.
        self.synchronize(context)?;
        let legacy = Stream {
            context,
            handle: Stream::LEGACY,
            thread: 0,
        };
        self.record(legacy)
    }
}
