//! The pools of this process: pools of streams by the driver's handles, and pools of `cudaMalloc`
//! by their contexts.
//!
//! A pool object is the driver's own and stays empty there, so that functions without a hook still
//! know it. Pools of this library are only ever added: a pool that was found once can be used
//! without a lock.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use gpushim_alloc::pool::{Pool, Settings};
use gpushim_alloc::{Context, Stream};
use gpushim_trace::Numbers;

use crate::base::{settings, stderr, thread};
use crate::cuda::captures;
use crate::cuda::device::{self, Cuda};
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, SUCCESS};
use crate::record::trace;

/// Most pools of one process. The driver serves memory of further ones.
const MOST: usize = 1024;
/// Least and most bytes of addresses of one pool.
const LEAST_ADDRESSES: u64 = 1 << 36;
const MOST_ADDRESSES: u64 = 1 << 44;

/// The requests that a pool serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Requests for streams, by the driver's handle of their pool.
    Streams(u64),
    /// `cudaMalloc` on a device whose driver has no pools, by its ordinal.
    Device(i32),
    /// `cudaMalloc` in a context, in driver allocations.
    Context(Context),
}

impl Requests {
    /// Returns a number that no other requests of the same kind have; never 0.
    fn number(self) -> u64 {
        match self {
            Requests::Streams(handle) => handle,
            Requests::Device(device) => 1 + u64::from(device.unsigned_abs()),
            Requests::Context(context) => context.0,
        }
    }

    fn kind(self) -> Kind {
        match self {
            Requests::Streams(_) => Kind::Streams,
            Requests::Device(_) => Kind::Device,
            Requests::Context(_) => Kind::Context,
        }
    }
}

/// The kind of [`Requests`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Streams,
    Device,
    Context,
}

/// A pool of this process, with its state in this library.
pub struct RegisteredPool {
    pub kind: Kind,
    /// The number of its [`Requests`]; 0 once the program has destroyed the pool, or its context
    /// has ended.
    number: AtomicU64,
    /// True while its context is about to end: its addresses may be in use by other memory.
    is_closed: AtomicBool,
    /// The ordinal of its device.
    pub device: i32,
    /// True once the pool was found unable to serve: the driver's own pool serves then.
    aside: AtomicBool,
    /// True if it serves `cudaMalloc`, alone or beside streams.
    serves_all: AtomicBool,
    /// Devices that may use its memory: by peer access of contexts, and because the program gave
    /// them access to the pool.
    access: Mutex<[Vec<i32>; 2]>,
    /// True if a synchronisation left memory that it would have freed without captures and graphs.
    pub(super) owes: AtomicBool,
    /// The pool of this library.
    pub pool: Pool<Cuda>,
    /// State of its blocks in the trace.
    pub numbers: Numbers,
}

impl RegisteredPool {
    /// Returns the driver's handle; 0 once the program destroyed the pool, and for a pool of
    /// `cudaMalloc` only.
    pub fn handle(&self) -> u64 {
        match self.kind {
            Kind::Streams => self.number.load(Ordering::Acquire),
            Kind::Device | Kind::Context => 0,
        }
    }

    /// True once the program has destroyed the pool, or its context has ended.
    pub fn is_ended(&self) -> bool {
        self.number.load(Ordering::Acquire) == 0
    }

    /// Ends the pool: it gets no further requests.
    pub fn end(&self) {
        self.number.store(0, Ordering::Release);
        self.is_closed.store(false, Ordering::Release);
    }

    /// Closes the pool while its context is about to end, or opens it again. Its blocks are found
    /// by no address meanwhile.
    pub fn close(&self, is_closed: bool) {
        self.is_closed.store(is_closed, Ordering::Release);
    }

    /// True if it is the pool of such requests.
    #[inline(always)]
    pub fn is_for(&self, requests: Requests) -> bool {
        self.kind == requests.kind() && self.number.load(Ordering::Acquire) == requests.number()
    }

    /// True if it serves `cudaMalloc`.
    pub fn serves_all(&self) -> bool {
        self.serves_all.load(Ordering::Relaxed)
    }

    /// Changes the devices that may use its memory for one reason. A device may use it for either
    /// reason. If the driver refuses, the lists and the access are as before.
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

    /// True if the driver serves new requests instead, because this pool was refused memory in
    /// pages.
    #[inline]
    pub fn is_aside(&self) -> bool {
        self.aside.load(Ordering::Relaxed)
    }

    /// True if the driver must serve a failed request, and all later ones: the pool was refused
    /// memory in pages. Reported once for each pool.
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

    /// True if a stream runs on the pool's device.
    pub fn is_on_device_of(&self, stream: Stream) -> bool {
        device::driver().ordinal_of(stream.context) == Ok(self.device)
    }
}

/// The reason for which a device may use a pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A context of the device has peer access to a context of the pool's device.
    Peers,
    /// The program gave the device access to the pool.
    Program,
}

/// The pools that serve `cudaMalloc`, by device.
static SERVING_ALL: [AtomicPtr<RegisteredPool>; 64] =
    [const { AtomicPtr::new(ptr::null_mut()) }; 64];

/// Returns the pool that serves a device's `cudaMalloc`, once there is one.
#[inline]
pub fn serving_all(device: i32) -> Option<&'static RegisteredPool> {
    let slot = SERVING_ALL.get(device as usize)?;
    // SAFETY: what is stored there was leaked, and is never freed.
    unsafe { slot.load(Ordering::Acquire).as_ref() }
}

/// Makes a pool serve its device's `cudaMalloc`.
pub fn serve_all(entry: &'static RegisteredPool) {
    entry.serves_all.store(true, Ordering::Relaxed);
    if let Some(slot) = SERVING_ALL.get(entry.device as usize) {
        slot.store(ptr::from_ref(entry).cast_mut(), Ordering::Release);
    }
}

static ENTRIES: [AtomicPtr<RegisteredPool>; MOST] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static ADDING: Mutex<()> = Mutex::new(());
/// Number of changes that made the streams remembered by threads invalid, from 1.
static EPOCH: AtomicU64 = AtomicU64::new(1);

/// Returns a number. The streams remembered by threads are valid as long as it is unchanged.
#[inline]
pub fn epoch() -> u64 {
    EPOCH.load(Ordering::Acquire)
}

/// Notes a change of streams, or of a device's current pool.
pub fn changed() {
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

/// Returns all pools that hold or may hold memory.
#[inline]
pub fn all() -> impl Iterator<Item = &'static RegisteredPool> {
    let count = COUNT.load(Ordering::Acquire);
    ENTRIES.iter().take(count).filter_map(|entry| {
        // SAFETY: what is stored there was leaked, and is never freed.
        unsafe { entry.load(Ordering::Acquire).as_ref() }
    })
}

/// Returns the pools of a device, or of all devices.
pub fn on(device: Option<i32>) -> impl Iterator<Item = &'static RegisteredPool> {
    all().filter(move |entry| device.is_none_or(|device| entry.device == device))
}

/// True if there is a pool. Cheap: for calls that need nothing else without pools.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// Finds the pool of a driver's handle, if this library serves it.
#[inline]
pub fn of(handle: u64) -> Option<&'static RegisteredPool> {
    find(Requests::Streams(handle)).filter(|_| handle != 0)
}

/// Finds the pool of some requests.
#[inline]
pub fn find(requests: Requests) -> Option<&'static RegisteredPool> {
    all().find(|entry| entry.is_for(requests))
}

/// Finds the pool that an address may belong to.
#[inline]
pub fn owner(address: u64) -> Option<&'static RegisteredPool> {
    owner_in_pages(address).or_else(|| of_allocations().find(|entry| entry.pool.owns(address)))
}

/// Returns the pools of whole driver allocations.
#[inline]
pub fn of_allocations() -> impl Iterator<Item = &'static RegisteredPool> {
    let open = all().filter(|entry| !entry.is_closed.load(Ordering::Acquire));
    open.filter(|entry| !entry.pool.is_pages())
}

/// Finds the pool of pages that has an address, without a lock.
#[inline(always)]
pub fn owner_in_pages(address: u64) -> Option<&'static RegisteredPool> {
    let has = |entry: &&RegisteredPool| entry.pool.owns_page(address);
    all().find(|entry| has(entry) && !entry.is_closed.load(Ordering::Acquire))
}

/// Registers a pool, with its own settings, and calls `made` after making one. An existing or an
/// unused pool is taken without that call. `None`: there are too many pools.
pub fn add(
    requests: Requests,
    device: i32,
    settings: Settings,
    made: impl FnOnce(),
) -> Option<&'static RegisteredPool> {
    if let Some(entry) = find(requests) {
        return Some(entry);
    }
    let _adding = ADDING.lock().ok()?;
    if let Some(entry) = find(requests) {
        return Some(entry);
    }
    let settings = Settings {
        page: settings::config().page,
        addresses: addresses(device),
        ..settings
    };
    let drained = |entry: &&RegisteredPool| {
        let stats = entry.pool.stats();
        entry.device == device
            && entry.kind == requests.kind()
            && entry.is_ended()
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
        entry.number.store(requests.number(), Ordering::Release);
        return Some(entry);
    }
    let count = COUNT.load(Ordering::Relaxed);
    let slot = ENTRIES.get(count)?;
    let entry = Box::leak(Box::new(RegisteredPool {
        kind: requests.kind(),
        number: AtomicU64::new(requests.number()),
        is_closed: AtomicBool::new(false),
        device,
        aside: AtomicBool::new(false),
        serves_all: AtomicBool::new(false),
        access: Mutex::default(),
        owes: AtomicBool::new(false),
        pool: Pool::new(device, settings),
        numbers: Numbers::new(),
    }));
    // Captures in progress may use this pool, too.
    captures::with_open(|open| {
        open.for_each(|(capture, is_broken)| {
            entry.pool.capture_began(capture);
            if is_broken {
                entry.pool.capture_broken(capture);
            }
        });
        slot.store(entry, Ordering::Release);
        COUNT.store(count + 1, Ordering::Release);
    })?;
    made();
    Some(entry)
}

/// Returns the bytes of addresses to reserve for a pool: several times the device's memory, whose
/// place there changes.
fn addresses(device: i32) -> u64 {
    let mut total = 0;
    // SAFETY: `total` is ours to write.
    let asked = thread::call(|| unsafe { real::cuDeviceTotalMem_v2(&mut total, device) });
    let total = if asked == SUCCESS { total as u64 } else { 0 };
    (4 * total)
        .next_power_of_two()
        .clamp(LEAST_ADDRESSES, MOST_ADDRESSES)
}
