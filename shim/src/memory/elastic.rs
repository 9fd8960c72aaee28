//! PyTorch's own segments, with memory only for live tensors (`GPUSHIM_ELASTIC`).
//!
//! A request for a segment comes from PyTorch's library through `cudaMalloc`. PyTorch announces the
//! tensors that it cuts from a segment by the functions of `hooks/torch.rs`, whose calls arrive
//! here.
//!
//! Other requests are served as without elastic segments:
//!
//! * requests of other libraries
//! * requests in other contexts
//! * requests from places in PyTorch that announce nothing afterwards (`elastic_sites.rs`)

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::Duration;

use gpushim_alloc::elastic::{Allocation, Elastic, Found, Mode, PAGE, Trouble};
use gpushim_alloc::{Context, Freed, Grant, Source, Stamp, Stream, UNNUMBERED};
use gpushim_config::Elastic as Setting;
use gpushim_torch::allocator::{LARGE_BUFFER, MIN_LARGE};
use gpushim_trace::Numbers;

use crate::base::lock::lock;
use crate::base::thread::Uncancelled;
use crate::base::{boundary, settings, stderr};
use crate::cuda::device::Cuda;
use crate::cuda::types::{CUresult, SUCCESS};
use crate::cuda::{captures, context, device, devices, green};
use crate::memory::caches::{self, Cache, News, Place, Search, Unused};
use crate::memory::elastic_sites::{self, Trust};
use crate::memory::{context_drain, miss, peer_access, physical};
use crate::record::events::Held;
use crate::record::{events, trace};

/// The segments of a device, in one context of it.
pub type OfDevice = Elastic<Cuda>;

/// Number of devices that can have segments.
const DEVICES: usize = 64;

/// Segments by the ordinal of the device. An entry was leaked, and is never freed.
static TABLE: [AtomicPtr<OfDevice>; DEVICES] = [const { AtomicPtr::new(ptr::null_mut()) }; DEVICES];
/// Lock held while an entry is made or replaced.
static MAKING: Mutex<()> = Mutex::new(());
/// True once there has been an entry.
static ANY: AtomicBool = AtomicBool::new(false);

/// State of the segments in the trace.
fn numbers() -> &'static Numbers {
    static NUMBERS: Numbers = Numbers::new();
    &NUMBERS
}

/// Default segments and mapped parts of ranges, by their addresses, as the trace gets their end.
/// Each has the place that asked for it, if the segment that begins there is on trial.
static PARTS: Mutex<BTreeMap<u64, (Freed, Option<usize>)>> = Mutex::new(BTreeMap::new());

/// Devices for which a lack of memory was reported, one bit each.
static SAID_HOST: AtomicU64 = AtomicU64::new(0);

/// True if the setting asks for elastic segments.
#[inline]
pub fn is_on() -> bool {
    settings::config().elastic != Setting::Off
}

/// True if there are or were segments. Cheap: for calls that need nothing else without segments.
#[inline]
pub fn any() -> bool {
    ANY.load(Ordering::Acquire)
}

/// Returns the segments of a device, if there are or were some.
#[inline]
pub fn at(device: i32) -> Option<&'static OfDevice> {
    let slot = TABLE.get(usize::try_from(device).ok()?)?;
    // SAFETY: what is stored there was leaked, and is never freed.
    unsafe { slot.load(Ordering::Acquire).as_ref() }
}

/// Returns the segments of all devices.
pub fn all() -> impl Iterator<Item = &'static OfDevice> {
    let devices = if any() { 0..DEVICES as i32 } else { 0..0 };
    devices.filter_map(at)
}

/// Returns the segments of a context, made if its device has none yet. `None`: another context has
/// them, or there can be none.
fn of(context: Context) -> Option<&'static OfDevice> {
    let ordinal = device::driver().ordinal_of(context).ok()?;
    let pool = match at(ordinal) {
        Some(pool) => pool,
        None => make(ordinal, context)?,
    };
    (pool.pages().context == context).then_some(pool)
}

#[cold]
fn make(ordinal: i32, context: Context) -> Option<&'static OfDevice> {
    let slot = TABLE.get(usize::try_from(ordinal).ok()?)?;
    if !devices::has_virtual_memory(ordinal) {
        return None;
    }
    let _making = MAKING.lock().ok()?;
    if let Some(pool) = at(ordinal) {
        return Some(pool);
    }
    boundary::prepare();
    caches::add(Place::Segments, &Segments);
    let mode = match settings::config().elastic {
        Setting::On => Mode::Least,
        Setting::Auto | Setting::Off => Mode::Pressure,
    };
    let pool: &OfDevice = Box::leak(Box::new(Elastic::new(Cuda, (ordinal, context), mode)));
    let peers = peer_access::of(context).into_iter();
    let peers = peers.filter_map(|peer| device::driver().ordinal_of(peer).ok());
    // There is no page yet whose access could be refused.
    let _ = pool.set_access(peers.filter(|peer| *peer != ordinal).collect());
    captures::with_open(|open| {
        open.for_each(|(capture, _)| pool.capture_began(capture));
        slot.store(ptr::from_ref(pool).cast_mut(), Ordering::Release);
        ANY.store(true, Ordering::Release);
    })?;
    if captures::any() {
        context_drain::prepare(context);
    }
    Some(pool)
}

/// Returns the segments of a device, made in a current or primary context if it has none yet.
pub fn on(device: i32) -> Option<&'static OfDevice> {
    let context = || physical::context_on(device).filter(|context| !green::is(*context));
    at(device).or_else(|| {
        opens();
        make(device, context()?)
    })
}

/// Prepares a thread that may ask the driver for memory.
fn opens() {
    trace::open();
    miss::begins();
    events::driver_ns();
}

/// Makes a segment for the place at a return address. `None`: the request must be served as any
/// other.
pub fn segment(bytes: u64, caller: *const c_void) -> Option<u64> {
    if bytes == 0 {
        return None;
    }
    let trust = elastic_sites::trust(caller);
    if trust == Trust::None {
        return None;
    }
    let _uncancelled = Uncancelled::new();
    let context = context::current().filter(|context| !green::is(*context))?;
    opens();
    let pool = of(context)?;
    // On a refusal for lack of memory the driver is asked. It refuses too, and the program gets the
    // driver's error.
    let first = if bytes == LARGE_BUFFER {
        MIN_LARGE
    } else {
        bytes
    };
    let address = pool.segment(bytes, first, trust == Trust::Full)?;
    let trial = (trust == Trust::Trial).then_some(caller);
    trial.inspect(|caller| elastic_sites::tried(*caller));
    made(pool, address, bytes, trial);
    Some(address)
}

/// Records a new segment, or a mapped part of a range. `trial`: the place that asked for it, if a
/// segment on trial begins there.
pub fn made(pool: &OfDevice, address: u64, bytes: u64, trial: Option<*const c_void>) {
    let device = pool.pages().device;
    let size = bytes.next_multiple_of(PAGE);
    let freed = Freed {
        address,
        requested: bytes,
        size,
        device,
        for_all: true,
        number: UNNUMBERED,
    };
    let trial = trial.map(|caller| caller as usize);
    lock(&PARTS).insert(address, (freed, trial));
    let grant = Grant {
        address,
        requested: bytes,
        size,
        source: Source::Grown,
        after: Stamp::default(),
        number: UNNUMBERED,
    };
    events::granted_on(&grant, device, Stream::ALL, numbers());
}

/// Frees a segment. `None`: no segment begins there.
#[inline]
pub fn free(address: u64) -> Option<CUresult> {
    any().then(|| all().find_map(|pool| free_from(pool, address)))?
}

#[inline(never)]
fn free_from(pool: &OfDevice, address: u64) -> Option<CUresult> {
    // Most frees are not of segments.
    if pool.find(address)?.base != address {
        return None;
    }
    let _uncancelled = Uncancelled::new();
    let freed = remove(pool, address, false)?;
    Some(freed.err().unwrap_or(SUCCESS))
}

/// Frees a default segment or removes a range, with all parts of it. `None`: no such segment begins
/// there.
pub fn remove(pool: &OfDevice, base: u64, is_range: bool) -> Option<Result<(), CUresult>> {
    let freed = pool.free(base, is_range, |addresses| left(pool, addresses))?;
    Some(freed.map(|trouble| trouble.into_iter().for_each(|why| tell(pool, why))))
}

/// Records the end of the segments and mapped parts of ranges that begin at these addresses.
pub fn left(pool: &OfDevice, addresses: Range<u64>) {
    let device = pool.pages().device;
    lock(&PARTS).retain(|address, (freed, _)| {
        let stays = freed.device != device || !addresses.contains(address);
        if !stays {
            events::freed_on(freed, Stream::ALL, numbers());
        }
        stays
    });
}

/// Notes a tensor that PyTorch announced on a device. `total`: live bytes with it. `stream`: the
/// number of its stream, if known.
#[inline]
pub fn allocated(device: i32, address: u64, bytes: u64, total: u64, stream: Option<u8>) {
    if let Some(pool) = at(device).filter(|_| any()) {
        let _uncancelled = Uncancelled::new();
        let allocation = pool.allocated(address, bytes, total, stream);
        if allocation != Allocation::default() {
            unusual(pool, address, allocation);
        }
    }
}

/// Notes the end of a tensor that PyTorch announced on a device. `total`: live bytes without it.
/// `is_elsewhere`: work of other streams may use it.
#[inline]
pub fn freed(device: i32, address: u64, bytes: u64, total: u64, is_elsewhere: bool) {
    if let Some(pool) = at(device).filter(|_| any()) {
        let _uncancelled = Uncancelled::new();
        if let Some(trouble) = pool.freed(address, bytes, total, is_elsewhere) {
            tell(pool, trouble);
        }
    }
}

#[cold]
fn unusual(pool: &OfDevice, address: u64, allocation: Allocation) {
    let trial = || lock(&PARTS).get(&address)?.1;
    if allocation.proves
        && let Some(caller) = trial()
    {
        elastic_sites::has_announced(caller as *const c_void);
    }
    if let Some(trouble) = allocation.trouble {
        tell(pool, trouble);
    }
    let device = pool.pages().device;
    let bit = 1 << (device.unsigned_abs() % 64);
    if allocation.on_host > 0 && SAID_HOST.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        note(
            device,
            "the device has no memory for a tensor, which gets the host's instead; that is slow",
        );
    }
    if allocation.missing > 0 {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            note(
                device,
                "neither the device nor the host has memory for a tensor; the program will fail when it uses it",
            );
        });
    }
}

fn tell(pool: &OfDevice, trouble: Trouble) {
    note(
        pool.pages().device,
        &format!(
            "PyTorch's announcements cannot be followed ({trouble}): memory stays where it is from now on"
        ),
    );
}

/// Informs the user by a line and by a fact in the trace.
fn note(device: i32, what: &str) {
    trace::fact(&format!("device.{device}.elastic"), what);
    stderr::say(&format!("GPUSHIM_ELASTIC: device {device}: {what}"));
}

/// Finds the segment that an address is in, and the segment's context.
#[inline]
pub fn find(address: u64) -> Option<(Found, Context)> {
    all().find_map(|pool| Some((pool.find(address)?, pool.pages().context)))
}

/// Returns the segment that an address is in and its pieces of memory, as [`Elastic::backing`], if
/// other processes can be given them.
pub fn backing(address: u64) -> Option<(Found, Vec<(u64, u64)>)> {
    let mut shareable = all().filter(|pool| physical::is_shareable(pool.pages().device));
    shareable.find_map(|pool| pool.backing(address))
}

/// Gives all of the segment at an address memory, which then stays: other processes or APIs can
/// reach it. False if there is too little memory.
pub fn pin(address: u64) -> bool {
    all().all(|pool| pool.pin(address))
}

/// Allows or forbids a context to use another context's memory.
///
/// # Errors
/// The driver's.
pub fn peer(accessor: Context, owner: Context, enabled: bool) -> Result<(), CUresult> {
    let ordinal = |context| device::driver().ordinal_of(context).ok();
    let Some((accessor, owner)) = ordinal(accessor).zip(ordinal(owner)).filter(|_| any()) else {
        return Ok(());
    };
    match at(owner).filter(|_| accessor != owner) {
        Some(pool) => pool.change_access(accessor, enabled),
        None => Ok(()),
    }
}

/// Removes the segments and ranges of a context that has ended.
pub fn context_gone(gone: Context) {
    let Ok(_making) = MAKING.lock() else { return };
    for pool in all().filter(|pool| pool.pages().context == gone) {
        if let Some(slot) = TABLE.get(pool.pages().device as usize) {
            // The device's next context makes an entry of its own.
            slot.store(ptr::null_mut(), Ordering::Release);
        }
        left(pool, 0..u64::MAX);
        pool.end();
    }
}

/// Records at the end of the process the number and the cost of moves, waits and events.
pub fn conclude() {
    for pool in all() {
        let (device, stats) = (pool.pages().device, pool.stats_now());
        if let Some(stats) = stats {
            let ms = |(count, time): (u64, Duration), what| {
                format!("{count} {what}, {:.1} ms", time.as_secs_f64() * 1e3)
            };
            let waits = ms(pool.pages().waits(), "waits");
            let events = ms(pool.pages().events(), "events");
            let what = format!("{} of pieces; {waits}; {events}", stats.moves);
            trace::fact(&format!("device.{device}.elastic.moves"), &what);
        }
    }
}

/// The segments of all devices as one cache.
struct Segments;

impl Cache for Segments {
    fn make_room(&self, search: &Search) -> u64 {
        let of_device = |pool: &&OfDevice| match search.device {
            Some(device) => pool.pages().device == device,
            None => true,
        };
        let asked = all().filter(|pool| search.asking != Some(pool.pages().id()));
        asked
            .filter(of_device)
            .map(|pool| pool.give_back(u64::MAX, search.waits, search.patience))
            .sum()
    }

    fn give_complete(&self, device: i32, bytes: u64, patience: Duration) -> u64 {
        at(device).map_or(0, |pool| pool.give_complete(bytes, patience))
    }

    fn decay(&self) -> u64 {
        all().map(Elastic::decay).sum()
    }

    fn returns(&self, _: i32) -> Option<u64> {
        Some(0)
    }

    fn unused(&self, device: i32) -> Unused {
        // Spare pages are given back before a request fails.
        let spare = at(device).map_or(0, |pool| pool.stats().spare);
        Unused {
            all: spare,
            cached: spare,
        }
    }

    fn held(&self, device: i32) -> Held {
        let stats = at(device).map(Elastic::stats).unwrap_or_default();
        Held {
            allocated: stats.in_use,
            reserved: stats.held,
            ..Held::default()
        }
    }

    fn held_now(&self, device: i32) -> Option<u64> {
        Some(at(device).map_or(0, |pool| pool.pages().held()))
    }

    fn note(&self, news: News) {
        match news {
            News::CaptureBegan(number) => all().for_each(|pool| pool.capture_began(number)),
            News::CaptureEnded(number, _) => all().for_each(|pool| pool.capture_ended(number)),
            News::Exported(address) => {
                pin(address);
            }
            News::CaptureBroken(_) | News::GraphDerived(..) | News::GraphDestroyed(_) => {}
        }
    }
}
