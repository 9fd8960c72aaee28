//! The stream-ordered pools of this process, by the driver's handles, and which of them serves a stream.
//!
//! A pool object is the driver's own and stays empty there: whatever we do not stand in for still knows
//! it. Ours are only ever added: what is found once can be used without a lock.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use gpushim_core::config::StreamPolicy;
use gpushim_core::mempool::{Layout, Marks, MemPool, Settings, Stream};
use gpushim_core::placement::Family;
use gpushim_core::pool::{Context, Device};
use gpushim_core::trace::Class;

use crate::base::{boundary, settings, stderr, thread};
use crate::cuda::functions::real;
use crate::cuda::types::{Handle, SUCCESS};
use crate::cuda::{captures, context, primary};
use crate::memory::device::Cuda;
use crate::memory::shortage::Active;
use crate::memory::{allocator, drain, mappings, peer_access, plans};
use crate::record::{events, trace};

/// Pools of one process, at most; memory of further ones is the driver's.
const MOST: usize = 1024;
/// Bytes of addresses of one pool.
const LEAST_ADDRESSES: u64 = 1 << 36;
const MOST_ADDRESSES: u64 = 1 << 44;
/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
const VIRTUAL_MEMORY: c_int = 102;
/// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED`.
const RDMA: c_int = 110;

/// One pool.
pub struct Entry {
    /// The driver's handle; 0 once the program destroyed the pool.
    handle: AtomicU64,
    /// The ordinal of its device.
    pub device: i32,
    /// Set when it turned out that our pool cannot serve: the driver's own does.
    aside: AtomicBool,
    /// Set when a synchronisation did not give back what it would have without captures and graphs.
    owes: AtomicBool,
    /// Our pool.
    pub pool: MemPool<Cuda>,
}

impl Entry {
    /// The driver's handle; 0 once the program destroyed the pool, and for memory of `cudaMalloc`.
    pub fn handle(&self) -> u64 {
        match self.handle.load(Ordering::Acquire) {
            handle if is_of_device(handle) => 0,
            handle => handle,
        }
    }

    /// What its blocks were allocated by.
    #[inline]
    pub fn class(&self) -> Class {
        if is_of_device(self.handle.load(Ordering::Relaxed)) {
            Class::Device
        } else {
            Class::PoolAsync
        }
    }

    /// Whether the driver serves new requests instead, because ours was refused memory in pages.
    #[inline]
    pub fn is_aside(&self) -> bool {
        self.aside.load(Ordering::Relaxed)
    }

    /// After a request failed: whether it was for the want of memory in pages, so that the driver serves it
    /// and all later ones. Said once for each pool.
    pub fn steps_aside(&self) -> bool {
        let Some((call, error)) = self.pool.refusal() else {
            return false;
        };
        if !self.aside.swap(true, Ordering::Relaxed) {
            changed();
            let why =
                format!("{call} gave {error}; the driver's own memory serves instead of pages");
            trace::fact(&format!("device.{}.stream_policy", self.device), &why);
            stderr::say(&format!("device {}: {why}", self.device));
        }
        true
    }

    /// Whether a stream runs on the pool's device.
    pub fn is_on_device_of(&self, stream: Stream) -> bool {
        driver().ordinal(stream.context) == Ok(self.device)
    }
}

/// Stands in for a handle where the pool is not the driver's; no handle, being an address, has it.
const OF_DEVICE: u64 = 1 << 63;

/// What stands for the pool of a device's `cudaMalloc`.
pub fn handle_of_device(device: i32) -> u64 {
    OF_DEVICE | u64::from(device.unsigned_abs())
}

fn is_of_device(handle: u64) -> bool {
    handle & OF_DEVICE != 0
}

static ENTRIES: [AtomicPtr<Entry>; MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static ADDING: Mutex<()> = Mutex::new(());
/// What threads remember of streams is valid while this stands.
static EPOCH: AtomicU64 = AtomicU64::new(1);

/// The calls that all pools make.
pub fn driver() -> &'static Cuda {
    static CUDA: Cuda = Cuda::new();
    &CUDA
}

/// All pools that hold or may hold memory.
#[inline]
pub fn all() -> impl Iterator<Item = &'static Entry> {
    let count = COUNT.load(Ordering::Acquire);
    ENTRIES.iter().take(count).filter_map(|entry| {
        // SAFETY: what is stored there was leaked, and is never freed.
        unsafe { entry.load(Ordering::Acquire).as_ref() }
    })
}

/// What pools hold and have not handed out, in bytes.
#[derive(Default)]
pub struct Figures {
    /// All of it.
    pub unused: u64,
    /// What `cudaMalloc` could have of it without the driver, or will be given back as soon as captures and
    /// graphs let it.
    pub cached: u64,
}

/// What the pools of a device hold and have not handed out.
pub fn figures(device: i32) -> Figures {
    let mut figures = Figures::default();
    for entry in on(Some(device)) {
        let stats = entry.pool.stats();
        let unused = stats.reserved.saturating_sub(stats.allocated);
        figures.unused += unused;
        figures.cached += match entry.class() {
            Class::Device => unused,
            _ if !entry.owes.load(Ordering::Relaxed) => 0,
            _ => unused.min(stats.reserved.saturating_sub(entry.pool.threshold())),
        };
    }
    figures
}

fn on(device: Option<i32>) -> impl Iterator<Item = &'static Entry> {
    all().filter(move |entry| device.is_none_or(|device| entry.device == device))
}

/// How long who needs memory waits for a pool that others look for memory in: they may be waiting for it.
const PATIENCE: Duration = Duration::from_millis(10);
/// The same for who holds nothing that others wait for.
const LONG: Duration = Duration::from_secs(2);

/// Gives back what is free, after the work that uses it where `waits`: of all pools, or of those of the
/// device of one that needs memory. Returns the bytes.
pub fn trim(asking: Option<&MemPool<Cuda>>, waits: bool) -> u64 {
    on(asking.map(MemPool::device))
        .filter(|entry| asking.is_none_or(|asking| !ptr::eq(asking, &entry.pool)))
        .map(|entry| entry.pool.make_room(driver(), waits, PATIENCE))
        .sum()
}

/// The housekeeper's tick: gives back what nobody asked for of late. Returns the bytes.
pub fn decay() -> u64 {
    let mut given = 0;
    for entry in all() {
        given += entry.pool.decay(driver());
        // Nobody asks a destroyed pool for memory again.
        if entry.handle.load(Ordering::Acquire) == 0 {
            given += entry.pool.trim(driver(), 0);
            entry.pool.vacate(driver());
        }
    }
    primary::decay();
    drain::decay();
    given
}

fn attribute(device: i32, attribute: c_int) -> bool {
    let mut value = 0;
    // SAFETY: `value` is ours to write.
    let asked =
        thread::call(|| unsafe { real::cuDeviceGetAttribute(&mut value, attribute, device) });
    asked == SUCCESS && value != 0
}

/// Whether a device has virtual memory management.
pub fn has_virtual_memory(device: i32) -> bool {
    static KNOWN: Known = Known::new();
    KNOWN.get(device, || attribute(device, VIRTUAL_MEMORY))
}

/// Whether any device has virtual memory management, or there is no telling yet.
pub fn is_vmm_possible() -> bool {
    let mut count = 0;
    // SAFETY: `count` is ours to write.
    let asked = thread::call(|| unsafe { real::cuDeviceGetCount(&mut count) });
    asked != SUCCESS || (0..count).any(has_virtual_memory)
}

/// What was asked of devices once.
struct Known(AtomicU64);

impl Known {
    const fn new() -> Self {
        Known(AtomicU64::new(0))
    }

    /// Two bits for each of the first 32 devices: known, and yes.
    fn get(&self, device: i32, ask: impl FnOnce() -> bool) -> bool {
        let Some(shift) = u32::try_from(device).ok().filter(|device| *device < 32) else {
            return ask();
        };
        match self.0.load(Ordering::Relaxed) >> (2 * shift) & 3 {
            0 => {
                let answer = ask();
                self.0.fetch_or(
                    (1 | u64::from(answer) << 1) << (2 * shift),
                    Ordering::Relaxed,
                );
                answer
            }
            known => known == 3,
        }
    }
}

/// Whether network cards can reach a device's virtual memory.
pub fn is_rdma_capable(device: i32) -> bool {
    static KNOWN: Mutex<Vec<(i32, bool)>> = Mutex::new(Vec::new());
    let Ok(mut known) = KNOWN.lock() else {
        return false;
    };
    if let Some((_, capable)) = known.iter().find(|(of, _)| *of == device) {
        return *capable;
    }
    let capable = attribute(device, RDMA);
    known.push((device, capable));
    capable
}

/// Whether the family is served by us at all.
#[inline]
pub fn is_enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| settings::config().stream_policy != StreamPolicy::Off)
}

fn layout(device: i32) -> Layout {
    let layout = match settings::config().stream_policy {
        StreamPolicy::Vmm => Layout::Pages,
        StreamPolicy::Segments => Layout::Segments,
        StreamPolicy::Blocks | StreamPolicy::Off => Layout::Whole,
        StreamPolicy::Bins => Layout::Bins,
    };
    if layout == Layout::Pages && !has_virtual_memory(device) {
        trace::fact(
            &format!("device.{device}.stream_policy"),
            "segments: the device has no virtual memory management",
        );
        return Layout::Segments;
    }
    layout
}

/// Bytes of addresses to reserve for a pool: several times the device's memory, which moves about there.
fn addresses(device: i32) -> u64 {
    let mut total = 0;
    // SAFETY: `total` is ours to write.
    let asked = thread::call(|| unsafe { real::cuDeviceTotalMem_v2(&mut total, device) });
    let total = if asked == SUCCESS { total as u64 } else { 0 };
    (4 * total)
        .next_power_of_two()
        .clamp(LEAST_ADDRESSES, MOST_ADDRESSES)
}

/// Takes in a pool, with the settings that are its own affair.
pub fn add(handle: u64, device: i32, settings: Settings) -> Option<&'static Entry> {
    if let Some(entry) = of(handle) {
        return Some(entry);
    }
    let _adding = ADDING.lock().ok()?;
    if let Some(entry) = of(handle) {
        return Some(entry);
    }
    let settings = Settings {
        layout: layout(device),
        page: settings::config().page,
        addresses: addresses(device),
        ..settings
    };
    let drained = |entry: &&Entry| {
        let stats = entry.pool.stats();
        entry.device == device
            && entry.handle.load(Ordering::Acquire) == 0
            && stats.live + stats.reserved + stats.quarantined == 0
    };
    if let Some(entry) = all()
        .filter(drained)
        .find(|entry| entry.pool.vacate(driver()))
    {
        entry.pool.reopen(settings);
        entry.aside.store(false, Ordering::Relaxed);
        entry.owes.store(false, Ordering::Relaxed);
        entry.handle.store(handle, Ordering::Release);
        return Some(entry);
    }
    let count = COUNT.load(Ordering::Relaxed);
    let slot = ENTRIES.get(count)?;
    let entry = Box::leak(Box::new(Entry {
        handle: AtomicU64::new(handle),
        device,
        aside: AtomicBool::new(false),
        owes: AtomicBool::new(false),
        pool: MemPool::new(device, settings),
    }));
    // What captures now may use this pool, too.
    captures::with_open(|open| {
        open.for_each(|capture| entry.pool.capture_began(capture));
        slot.store(entry, Ordering::Release);
        COUNT.store(count + 1, Ordering::Release);
    })?;
    if captures::any() {
        context::current().into_iter().for_each(drain::prepare);
    }
    Some(entry)
}

/// The pool of a driver's handle, if it is one of ours.
#[inline]
pub fn of(handle: u64) -> Option<&'static Entry> {
    all().find(|entry| handle != 0 && entry.handle.load(Ordering::Acquire) == handle)
}

/// The program destroyed a pool: its blocks live on until they are freed.
pub fn destroyed(handle: u64) {
    if let Some(entry) = of(handle) {
        entry.handle.store(0, Ordering::Release);
        entry.pool.set_threshold(0);
        entry.pool.trim(driver(), 0);
        entry.pool.vacate(driver());
    }
    changed();
}

/// The pool that an address may belong to.
#[inline]
pub fn owner(address: u64) -> Option<&'static Entry> {
    all().find(|entry| entry.pool.owns(address))
}

/// Something changed about streams, or about which pool is a device's current one.
pub fn changed() {
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

/// A stream and the pool that serves it.
#[derive(Clone, Copy)]
pub struct Target {
    /// The stream.
    pub stream: Stream,
    /// Its device's current pool, if that is one of ours.
    pub entry: Option<&'static Entry>,
}

/// What a stream handle, 0 not among them, means in this thread. `None`: no stream, or one that we
/// know nothing of.
#[inline]
pub fn target(handle: u64) -> Option<Target> {
    let special = handle <= Stream::PER_THREAD;
    let context = if special { context::current()?.0 } else { 0 };
    let known = thread::with(|t| {
        let same = t.stream.get() == handle
            && t.stream_epoch.get() == EPOCH.load(Ordering::Acquire)
            && (!special || t.stream_context.get() == context);
        same.then(|| Target {
            stream: Stream {
                context: Context(t.stream_context.get()),
                handle,
                thread: if handle == Stream::PER_THREAD {
                    thread::serial()
                } else {
                    0
                },
            },
            // SAFETY: null, or the address of an entry, which is never freed.
            entry: unsafe { t.stream_entry.get().cast::<Entry>().as_ref() },
        })
    });
    match known {
        Some(target) => Some(target),
        None => ask(handle),
    }
}

/// The context that a stream belongs to, or that a default stream's handle means in this thread.
pub fn context_of(handle: u64) -> Option<Context> {
    if handle <= Stream::PER_THREAD {
        return context::current();
    }
    let mut context = ptr::null_mut();
    // SAFETY: `context` is ours to write.
    let asked = thread::call(|| unsafe { real::cuStreamGetCtx(handle as Handle, &mut context) });
    (asked == SUCCESS && !context.is_null()).then_some(Context(context as u64))
}

/// The ordinal of the device that a stream runs on.
pub fn device_of(handle: u64) -> Option<i32> {
    driver().ordinal(context_of(handle)?).ok()
}

#[cold]
fn ask(handle: u64) -> Option<Target> {
    let epoch = EPOCH.load(Ordering::Acquire);
    let context = context_of(handle)?;
    let device = driver().ordinal(context).ok()?;
    let entry = current(device);
    let thread = if handle == Stream::PER_THREAD {
        has_streams();
        thread::serial()
    } else {
        0
    };
    thread::with(|t| {
        t.stream.set(handle);
        t.stream_context.set(context.0);
        t.stream_entry
            .set(entry.map_or(ptr::null(), |entry| ptr::from_ref(entry).cast()));
        t.stream_epoch.set(epoch);
    });
    let stream = Stream {
        context,
        handle,
        thread,
    };
    Some(Target { stream, entry })
}

/// The default streams of this thread are in use: pools hear of its end.
#[cold]
fn has_streams() {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `key` is ours to write; the function does not unwind.
        (unsafe { libc::pthread_key_create(&mut key, Some(ended)) } == 0).then_some(key)
    });
    if let Some(key) = key {
        // A key and not a destructor of the language's: those of the host that use its streams run before,
        // and one that runs later still has this one called again.
        // SAFETY: the key is valid; the value is not followed.
        unsafe { libc::pthread_setspecific(*key, thread::serial() as *const c_void) };
    }
}

/// A thread whose default streams were in use ends.
extern "C" fn ended(serial: *mut c_void) {
    // What it remembers of streams is of no use: to use one again is to be heard of again.
    thread::with(|t| t.stream_epoch.set(0));
    boundary::run(|| (), || thread_gone(serial as u64));
}

/// A device's current pool, if it is one of ours.
fn current(device: i32) -> Option<&'static Entry> {
    let (mut pool, mut default) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: both are ours to write.
    let asked = thread::call(|| unsafe {
        match real::cuDeviceGetMemPool(&mut pool, device) {
            SUCCESS => real::cuDeviceGetDefaultMemPool(&mut default, device),
            error => error,
        }
    });
    if asked != SUCCESS || pool.is_null() {
        return None;
    }
    // A pool of the program's was taken in when it was made, unless it is one that we leave alone.
    of(pool as u64)
        .or_else(|| (pool == default).then(|| add(pool as u64, device, of_default(device)))?)
        .filter(|entry| !entry.is_aside())
}

/// A device's default pool, taken in if it is not yet.
pub fn default(device: i32, handle: u64) -> Option<&'static Entry> {
    of(handle).or_else(|| is_enabled().then(|| add(handle, device, of_default(device)))?)
}

fn of_default(device: i32) -> Settings {
    Settings {
        placement: plans::of(device, Family::Streams),
        ..Settings::default()
    }
}

/// A stream is about to be destroyed.
pub fn stream_gone(handle: u64) {
    changed();
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    if let Some(target) = target(handle) {
        all().for_each(|entry| entry.pool.stream_gone(driver(), target.stream));
    }
    changed();
}

/// A thread has ended, and with it its default streams.
pub fn thread_gone(thread: u64) {
    all().for_each(|entry| entry.pool.thread_gone(driver(), thread));
}

/// A context has ended, and the blocks of `cudaMalloc` in it; stream-ordered ones live on. Returns the bytes that `cudaMalloc` had handed out there, and those given back after it.
pub fn context_gone(gone: Context) -> (u64, u64) {
    changed();
    let (mut live, mut given) = (0, 0);
    let is_last = peer_access::none();
    for entry in all() {
        let of_context = entry.class() == Class::Device;
        live += entry.pool.context_gone(driver(), gone, of_context);
        if is_last {
            entry.pool.device_idle();
        }
        if of_context {
            given += entry.pool.trim(driver(), 0);
        }
    }
    driver().forget(gone);
    drain::context_gone(gone);
    // Its end is a synchronisation, too.
    all().for_each(release_surplus);
    (live, given)
}

/// The pools whose memory lies in a device's primary context, for want of virtual memory management.
pub fn in_primary(device: i32) -> impl Iterator<Item = &'static Entry> {
    let in_context = |entry: &&Entry| entry.pool.layout() != Layout::Pages;
    on(Some(device))
        .filter(move |_| !mappings::serve(device))
        .filter(in_context)
}

/// A device's primary context ends, and what lies in it. Returns the bytes that were handed out and held.
pub fn primary_gone(device: i32) -> (u64, u64) {
    in_primary(device).fold((0, 0), |(allocated, held), entry| {
        let (a, h) = entry.pool.abandon(driver());
        (allocated + a, held + h)
    })
}

/// Calls a function that waits for a stream or for a whole context, after which pools know what
/// is over and give back what they are not to keep.
pub fn synchronize(
    context: Option<Context>,
    stream: Option<Stream>,
    call: impl FnOnce() -> u32,
) -> u32 {
    let Some(context) = context.filter(|_| COUNT.load(Ordering::Acquire) > 0) else {
        return call();
    };
    // A stream's synchronisation is frequent: it is only of interest where memory may go back.
    let interested = |entry: &&Entry| stream.is_none() || entry.pool.is_above_threshold();
    let alone = !peer_access::any() || peer_access::of(context).is_empty();
    let marks: Vec<(&Entry, Marks)> = all()
        .filter(interested)
        .map(|entry| (entry, entry.pool.mark(context, stream, alone)))
        .collect();
    let result = call();
    if result == SUCCESS {
        for (entry, marks) in &marks {
            entry.pool.synchronized(marks);
            release_surplus(entry);
        }
    }
    result
}

/// Gives back what a pool is not to keep at a synchronisation: what captures and graphs keep, later.
pub fn release_surplus(entry: &Entry) {
    if !entry.pool.is_above_threshold() {
        return;
    }
    let waits = captures::any() || {
        trim_to(entry, entry.pool.threshold());
        entry.pool.stats().quarantined > 0
    };
    entry.owes.store(waits, Ordering::Relaxed);
}

/// A capture is over, or a graph is gone: what pools were to give back before goes.
pub fn release_owed() {
    if !captures::any() {
        let owing = |entry: &&Entry| entry.owes.swap(false, Ordering::Relaxed);
        all().filter(owing).for_each(release_surplus);
    }
}

/// Gives back what a pool holds beyond so many bytes, because the program wants it.
pub fn trim_to(entry: &Entry, keep: u64) {
    let _active = Active::begin();
    let bytes = entry.pool.trim(driver(), keep);
    events::trimmed_to(entry.device, keep, bytes);
}

/// Whether a pool serves the process: for places that have nothing to tell an empty house.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// Memory was short for somebody else. Returns the bytes given back.
pub fn make_room() -> u64 {
    captures::release_broken();
    let cached = allocator::used().map_or(0, |pool| pool.make_room(None));
    cached + trim(None, true)
}

/// Gives everything back that can be, and waits for what others are giving back. Not to be called by who holds
/// a pool.
pub fn make_room_patiently() {
    captures::release_broken();
    if let Some(pool) = allocator::used() {
        pool.make_room(None);
        pool.wait_for_releases();
    }
    for entry in all() {
        entry.pool.make_room(driver(), true, LONG);
    }
}
