//! The pools of this process: the one of `cudaMalloc`, and those of streams by the driver's handles.
//!
//! A pool object is the driver's own and stays empty there: functions without a hook of ours still know it. Ours are
//! only ever added: a pool that was found once can be used without a lock.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gpushim_alloc::Stream;
use gpushim_alloc::device_pool::{self, DevicePool};
use gpushim_alloc::stream_pool::{Settings, StreamPool};
use gpushim_trace::Numbers;

use crate::base::thread::{self, Uncancelled};
use crate::base::{boundary, settings, stderr};
use crate::cuda::captures;
use crate::cuda::device::{self, Cuda};
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, SUCCESS};
use crate::memory::caches::{self, Asking, Cache, News, Place, Search, Unused};
use crate::memory::policy;
use crate::record::events::Held;
use crate::record::trace;

static POOL: OnceLock<Option<DevicePool<Cuda>>> = OnceLock::new();

/// The pool of `cudaMalloc`; `None` under the policy `off`, and where memory is served in pages.
#[inline]
pub fn pool() -> Option<&'static DevicePool<Cuda>> {
    match POOL.get() {
        Some(pool) => pool.as_ref(),
        None => create(),
    }
}

#[cold]
fn create() -> Option<&'static DevicePool<Cuda>> {
    let _uncancelled = Uncancelled::new();
    boundary::prepare();
    let pool = POOL.get_or_init(|| {
        let config = settings::config();
        if !policy::serves_blocks() {
            return None;
        }
        let settings = device_pool::Settings {
            reuse: config.reuse,
            cache_max: config.cache_max,
            ..device_pool::Settings::default()
        };
        caches::add(Place::Whole, &Whole);
        Some(DevicePool::new(Cuda::new(), settings))
    });
    pool.as_ref()
}

/// Where the trace has the blocks of [`pool`].
#[inline(always)]
pub fn numbers() -> &'static Numbers {
    static NUMBERS: Numbers = Numbers::new();
    &NUMBERS
}

/// The pool if it was ever used: for hooks that need not inform an empty pool.
#[inline]
pub fn used() -> Option<&'static DevicePool<Cuda>> {
    POOL.get().and_then(Option::as_ref)
}

/// Pools of one process, at most; memory of further ones is the driver's.
const MOST: usize = 1024;
/// Bytes of addresses of one pool.
const LEAST_ADDRESSES: u64 = 1 << 36;
const MOST_ADDRESSES: u64 = 1 << 44;

/// One pool.
pub struct RegisteredPool {
    /// The driver's handle; 0 once the program destroyed the pool.
    pub(super) handle: AtomicU64,
    /// The ordinal of its device.
    pub device: i32,
    /// Set when our pool was found unable to serve: the driver's own pool serves then.
    aside: AtomicBool,
    /// Set when `cudaMalloc` is served, too, or only.
    serves_all: AtomicBool,
    /// Devices that may use its memory: by peer access of contexts, and because the program gave the pool to them.
    access: Mutex<[Vec<i32>; 2]>,
    /// Set when a synchronisation did not give back what it would have without captures and graphs.
    pub(super) owes: AtomicBool,
    /// Our pool.
    pub pool: StreamPool<Cuda>,
    /// Where the trace has its blocks.
    pub numbers: Numbers,
}

impl RegisteredPool {
    /// The driver's handle; 0 once the program destroyed the pool, and for a pool of `cudaMalloc` only.
    pub fn handle(&self) -> u64 {
        match self.handle.load(Ordering::Acquire) {
            handle if is_of_device(handle) => 0,
            handle => handle,
        }
    }

    /// Whether it serves `cudaMalloc` only.
    pub fn is_of_device(&self) -> bool {
        is_of_device(self.handle.load(Ordering::Relaxed))
    }

    /// Whether it serves `cudaMalloc`.
    pub fn serves_all(&self) -> bool {
        self.serves_all.load(Ordering::Relaxed)
    }

    /// Changes which devices may use its memory for one reason; each may for either. If the driver refuses, all is as
    /// it was.
    ///
    /// # Errors
    /// The driver's.
    pub fn set_access(
        &self,
        why: Access,
        change: impl FnOnce(&mut Vec<i32>),
    ) -> Result<(), CUresult> {
        let wanted = |lists: &[Vec<i32>; 2]| lists.concat();
        let mut access = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        let before = access.clone();
        let [by_peers, by_program] = &mut *access;
        change(match why {
            Access::Peers => by_peers,
            Access::Program => by_program,
        });
        let (old, new) = (wanted(&before), wanted(&access));
        let set = |devices: &[i32]| self.pool.set_access(device::driver(), devices);
        set(&new).inspect_err(|_| {
            *access = before;
            let _ = set(&old);
        })
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

/// Why a device may use a pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A context of it has peer access to one of the pool's device.
    Peers,
    /// The program gave that device access to the pool.
    Program,
}

/// The pools that serve `cudaMalloc`, by device.
static SERVING_ALL: [AtomicPtr<RegisteredPool>; 64] =
    [const { AtomicPtr::new(ptr::null_mut()) }; 64];

/// The pool that serves a device's `cudaMalloc`, once there is one.
#[inline]
pub fn serving_all(device: i32) -> Option<&'static RegisteredPool> {
    let slot = SERVING_ALL.get(device as usize)?;
    // SAFETY: what is stored there was leaked, and is never freed.
    unsafe { slot.load(Ordering::Acquire).as_ref() }
}

/// A pool serves its device's `cudaMalloc` from now on.
pub fn serve_all(entry: &'static RegisteredPool) {
    entry.serves_all.store(true, Ordering::Relaxed);
    if let Some(slot) = SERVING_ALL.get(entry.device as usize) {
        slot.store(ptr::from_ref(entry).cast_mut(), Ordering::Release);
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

static ENTRIES: [AtomicPtr<RegisteredPool>; MOST] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MOST];
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
pub fn all() -> impl Iterator<Item = &'static RegisteredPool> {
    let count = COUNT.load(Ordering::Acquire);
    ENTRIES.iter().take(count).filter_map(|entry| {
        // SAFETY: what is stored there was leaked, and is never freed.
        unsafe { entry.load(Ordering::Acquire).as_ref() }
    })
}

/// The pools of a device, or of all.
pub fn on(device: Option<i32>) -> impl Iterator<Item = &'static RegisteredPool> {
    all().filter(move |entry| device.is_none_or(|device| entry.device == device))
}

/// Whether there is a stream-ordered pool, or one of pages. Cheap: for calls that have nothing to do without.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// The pool of a driver's handle, if it is one of ours.
#[inline]
pub fn of(handle: u64) -> Option<&'static RegisteredPool> {
    all().find(|entry| handle != 0 && entry.handle.load(Ordering::Acquire) == handle)
}

/// The pool that an address may belong to.
#[inline]
pub fn owner(address: u64) -> Option<&'static RegisteredPool> {
    all().find(|entry| entry.pool.owns(address))
}

/// Registers a pool, with its own settings. If no existing pool serves it, calls `made` after making one.
/// `None`: the driver's own pools serve the device, or there are too many pools.
pub fn add(
    handle: u64,
    device: i32,
    settings: Settings,
    made: impl FnOnce(),
) -> Option<&'static RegisteredPool> {
    if let Some(entry) = of(handle) {
        return Some(entry);
    }
    let policy = policy::of_streams(device)?;
    let _adding = ADDING.lock().ok()?;
    if let Some(entry) = of(handle) {
        return Some(entry);
    }
    let settings = Settings {
        policy,
        page: settings::config().page,
        addresses: addresses(device),
        ..settings
    };
    let drained = |entry: &&RegisteredPool| {
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
        entry.serves_all.store(false, Ordering::Relaxed);
        *entry.access.lock().ok()? = Default::default();
        entry.owes.store(false, Ordering::Relaxed);
        entry.handle.store(handle, Ordering::Release);
        return Some(entry);
    }
    let count = COUNT.load(Ordering::Relaxed);
    let slot = ENTRIES.get(count)?;
    let entry = Box::leak(Box::new(RegisteredPool {
        handle: AtomicU64::new(handle),
        device,
        aside: AtomicBool::new(false),
        serves_all: AtomicBool::new(false),
        access: Mutex::default(),
        owes: AtomicBool::new(false),
        pool: StreamPool::new(device, settings),
        numbers: Numbers::new(),
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

/// The pool of `cudaMalloc`, as one of all caches.
struct Whole;

impl Cache for Whole {
    fn make_room(&self, search: &Search) -> u64 {
        let pool = used().filter(|_| search.asking != Asking::Whole);
        pool.map_or(0, |pool| pool.make_room(search.device))
    }

    fn wait_for_releases(&self) {
        if let Some(pool) = used() {
            pool.wait_for_releases();
        }
    }

    fn give_complete(&self, device: i32, _: u64, _: Duration) -> u64 {
        used().map_or(0, |pool| pool.give_complete(device))
    }

    fn decay(&self) -> u64 {
        used().map_or(0, DevicePool::decay)
    }

    fn returns(&self, device: i32) -> Option<u64> {
        used().map_or(Some(0), |pool| pool.returns(device))
    }

    fn unused(&self, device: i32) -> Unused {
        let cached = used().map_or(0, |pool| pool.cached_bytes(device));
        Unused {
            all: cached,
            cached,
        }
    }

    fn held(&self, device: i32) -> Held {
        used().map_or(Held::default(), |pool| {
            let stats = pool.stats(Some(device));
            Held {
                allocated: stats.allocated,
                reserved: stats.reserved,
                quarantined: stats.quarantined,
                largest_free: pool.largest_free(device),
            }
        })
    }

    fn held_now(&self, device: i32) -> Option<u64> {
        used().map_or(Some(0), |pool| pool.reserved_now(device))
    }

    fn note(&self, news: News) {
        let Some(pool) = used() else { return };
        match news {
            News::CaptureBegan(number) => pool.capture_began(number),
            News::CaptureEnded(number, graph) => pool.capture_ended(number, graph),
            News::CaptureBroken(number) => pool.capture_broken(number),
            News::GraphDerived(from, to) => pool.graph_derived(from, to),
            News::GraphDestroyed(graph) => pool.graph_destroyed(graph),
            News::Exported(address) => pool.exported(address),
        }
    }
}
