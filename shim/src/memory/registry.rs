//! The pools of this process: the one of `cudaMalloc`, and those of streams by the driver's handles.
//!
//! A pool object is the driver's own and stays empty there: whatever we do not stand in for still knows it. Ours are only
//! ever added: what is found once can be used without a lock.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use gpushim_alloc::Stream;
use gpushim_alloc::mempool::{MemPool, Settings};
use gpushim_alloc::pool::{self, Pool};
use gpushim_trace::Class;

use crate::base::thread::{self, Uncancelled};
use crate::base::{boundary, settings, stderr};
use crate::cuda::captures;
use crate::cuda::device::{self, Cuda};
use crate::cuda::functions::real;
use crate::cuda::types::SUCCESS;
use crate::memory::policy;
use crate::record::trace;

static POOL: OnceLock<Option<Pool<Cuda>>> = OnceLock::new();

/// The pool of `cudaMalloc`; `None` under the policy `off`, and where memory is served in pages.
#[inline]
pub fn pool() -> Option<&'static Pool<Cuda>> {
    match POOL.get() {
        Some(pool) => pool.as_ref(),
        None => create(),
    }
}

#[cold]
fn create() -> Option<&'static Pool<Cuda>> {
    let _uncancelled = Uncancelled::new();
    boundary::prepare();
    let pool = POOL.get_or_init(|| {
        let config = settings::config();
        let settings = pool::Settings {
            policy: policy::of_pool()?,
            reuse: config.reuse,
            limit: config.limit,
            cache_max: config.cache_max,
            ..pool::Settings::default()
        };
        Some(Pool::new(Cuda::new(), settings))
    });
    pool.as_ref()
}

/// The pool if it was ever used: for hooks that have nothing to tell a pool that is empty.
#[inline]
pub fn used() -> Option<&'static Pool<Cuda>> {
    POOL.get().and_then(Option::as_ref)
}

/// Pools of one process, at most; memory of further ones is the driver's.
const MOST: usize = 1024;
/// Bytes of addresses of one pool.
const LEAST_ADDRESSES: u64 = 1 << 36;
const MOST_ADDRESSES: u64 = 1 << 44;

/// One pool.
pub struct Entry {
    /// The driver's handle; 0 once the program destroyed the pool.
    pub(super) handle: AtomicU64,
    /// The ordinal of its device.
    pub device: i32,
    /// Set when it turned out that our pool cannot serve: the driver's own does.
    aside: AtomicBool,
    /// Set when a synchronisation did not give back what it would have without captures and graphs.
    pub(super) owes: AtomicBool,
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
        device::driver().ordinal_of(stream.context) == Ok(self.device)
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
/// Counts the changes after which what threads remember of streams is not valid any more.
static EPOCH: AtomicU64 = AtomicU64::new(1);

/// What threads remember of streams is valid while this number stays.
#[inline]
pub fn epoch() -> u64 {
    EPOCH.load(Ordering::Acquire)
}

/// Something changed about streams, or about which pool is a device's current one.
pub fn changed() {
    EPOCH.fetch_add(1, Ordering::AcqRel);
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

/// The pools of a device, or of all.
pub fn on(device: Option<i32>) -> impl Iterator<Item = &'static Entry> {
    all().filter(move |entry| device.is_none_or(|device| entry.device == device))
}

/// Whether there is a stream-ordered pool, or one of pages. Cheap: for calls that have nothing to do without.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// The pool of a driver's handle, if it is one of ours.
#[inline]
pub fn of(handle: u64) -> Option<&'static Entry> {
    all().find(|entry| handle != 0 && entry.handle.load(Ordering::Acquire) == handle)
}

/// The pool that an address may belong to.
#[inline]
pub fn owner(address: u64) -> Option<&'static Entry> {
    all().find(|entry| entry.pool.owns(address))
}

/// Takes in a pool, with the settings that are its own affair. If none that there was before serves it, `made` is
/// called after one was made.
pub fn add(
    handle: u64,
    device: i32,
    settings: Settings,
    made: impl FnOnce(),
) -> Option<&'static Entry> {
    if let Some(entry) = of(handle) {
        return Some(entry);
    }
    let _adding = ADDING.lock().ok()?;
    if let Some(entry) = of(handle) {
        return Some(entry);
    }
    let settings = Settings {
        policy: policy::of_streams(device),
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
        .find(|entry| entry.pool.vacate(device::driver()))
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
    made();
    Some(entry)
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
