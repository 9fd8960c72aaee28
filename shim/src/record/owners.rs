//! The owners of blocks: has the program's objects walked, and records the names that are found.
//!
//! The background thread asks for a walk in two cases: when the run is twice as long as at the last
//! one, and at a new maximum of live memory. `pace` limits the time of walks. The interpreter's
//! main thread walks between two of its instructions. `told` makes events of the text of a walk.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once, OnceLock};
use std::time::{Duration, Instant};

use gpushim_config::{Announcements, Log};
use gpushim_python::{Owners, Walk, Walked};
use gpushim_trace::background::{self, Background};
use gpushim_trace::{Class, Event, Facts, Kept, Kind, Occasion, OwnerWords, Writer, walk};

use crate::base::stderr::say;
use crate::base::{boundary, settings, thread};
use crate::record::{python, trace};

mod blocks;
mod pace;
mod told;

use blocks::{Blocks, live};
use pace::{Pace, bit};
use told::Head;

/// Occasions for which the main thread will walk at its next safe point, one bit each.
static WANTED: AtomicU64 = AtomicU64::new(0);
/// Bit of [`WANTED`]: registers a walk at the end of the interpreter, and prepares the walks.
const PREPARE: u64 = 1 << 63;
/// True while a thread walks.
static IS_UNDER_WAY: AtomicBool = AtomicBool::new(false);
/// True once no walk succeeds any more.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Time that the main thread has to reach a safe point for a walk. It may wait in C instead: then
/// another thread walks.
const SAFE_POINT_WITHIN: Duration = Duration::from_secs(1);

/// True while another thread walks in place of the main thread, or is about to.
static IS_SUBSTITUTED: AtomicBool = AtomicBool::new(false);
/// True once the interpreter is about to end: no other thread may wait for its GIL.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Longest time that the end of the interpreter waits for that other thread.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Functions to walk over the objects of the process's interpreter, once it was found.
static OWNERS: OnceLock<Owners> = OnceLock::new();

/// Time from the beginning of a run in which each tick of the background thread may be the last.
const SHORT: Duration = Duration::from_secs(10);
/// Time in which further out-of-memory errors get no walk of their own.
const BETWEEN_SHORTAGES: Duration = Duration::from_secs(10);

static PACE: Mutex<Pace> = Mutex::new(Pace::new());

/// The state of the background thread's asking.
struct Asking {
    /// True once the end of the interpreter gets a walk.
    is_prepared: bool,
    /// Time at which a wanted walk was first seen, until it is made.
    since: Option<Instant>,
    /// The time of the last walk after an out-of-memory.
    shortage: Option<Instant>,
}

static ASKING: Mutex<Asking> = Mutex::new(Asking {
    is_prepared: false,
    since: None,
    shortage: None,
});

/// Returns true if owners are recorded in this process.
fn is_on() -> bool {
    let config = settings::config();
    config.owners == Announcements::Auto
        && config.trace_facts != Facts::None
        && !IS_OVER.load(Ordering::Relaxed)
}

/// Asks for a walk if one is due, at each tick of the background thread. True if the next tick
/// should come soon.
pub fn consider(writer: &Writer) -> bool {
    is_on()
        && ASKING
            .lock()
            .is_ok_and(|mut asking| asking.consider(writer))
}

impl Asking {
    fn consider(&mut self, writer: &Writer) -> bool {
        if WANTED.load(Ordering::Relaxed) != 0 {
            let since = *self.since.get_or_insert_with(Instant::now);
            if since.elapsed() >= SAFE_POINT_WITHIN {
                self.since = None;
                substitute();
            }
            return false;
        }
        self.since = None;
        // The time of a walk in progress is not counted yet.
        if IS_UNDER_WAY.load(Ordering::Acquire) {
            return true;
        }
        let Ok(mut pace) = PACE.lock() else {
            return false;
        };
        pace.begin();
        let (is_due, is_short) = (pace.is_due(live(writer)), pace.elapsed() < SHORT);
        drop(pace);
        if !self.is_prepared {
            self.is_prepared = ask_for(PREPARE);
        } else if is_due {
            ask_for(bit(Occasion::High));
        }
        self.is_prepared && is_short
    }
}

/// Asks for a walk. False: owners are not recorded, or there is no interpreter.
pub fn ask(occasion: Occasion) -> bool {
    is_on() && ask_for(bit(occasion))
}

/// Asks for a walk after a request that failed, unless one was asked for just before.
pub fn out_of_memory() {
    if !is_on() {
        return;
    }
    if let Ok(mut asking) = ASKING.try_lock()
        && (asking.shortage).is_none_or(|last| last.elapsed() > BETWEEN_SHORTAGES)
    {
        asking.shortage = Some(Instant::now());
        ask_for(bit(Occasion::OutOfMemory));
    }
}

/// Returns true while a walk after an out-of-memory is still to be made, or any is under way.
pub fn is_awaited() -> bool {
    WANTED.load(Ordering::Acquire) & bit(Occasion::OutOfMemory) != 0
        || IS_UNDER_WAY.load(Ordering::Acquire)
}

fn ask_for(what: u64) -> bool {
    if IS_ENDING.load(Ordering::Acquire) {
        return false;
    }
    let Some(owners) = OWNERS.get().or_else(|| {
        let found = python::owners()?;
        Some(OWNERS.get_or_init(|| found))
    }) else {
        return false;
    };
    let before = WANTED.fetch_or(what, Ordering::AcqRel);
    // The thread that asked first may not have told the interpreter yet. A program that asks gets
    // the walk before its next call returns.
    if before & what != 0 || before != 0 && what != bit(Occasion::Asked) {
        return true;
    }
    let is_asked = owners.at_safe_point(at_safe_point);
    if !is_asked && before == 0 {
        WANTED.fetch_and(!what, Ordering::AcqRel);
    }
    is_asked || before != 0
}

/// Starts a thread that walks in place of the main thread.
fn substitute() {
    if OWNERS.get().is_none() || IS_SUBSTITUTED.swap(true, Ordering::AcqRel) {
        return;
    }
    let started = background::spawn("gpushim-owners", 1 << 20, || {
        let _background = Background::new();
        if let Some(owners) = OWNERS.get()
            && !IS_ENDING.load(Ordering::Acquire)
        {
            owners.with_gil(|| {
                // SAFETY: this thread has the GIL, and no exception: it ran nothing. No signal
                // handler runs on it.
                boundary::run(|| Walked::Done, || unsafe { serve_wanted() });
            });
        }
        IS_SUBSTITUTED.store(false, Ordering::Release);
    });
    if started.is_err() {
        IS_SUBSTITUTED.store(false, Ordering::Release);
    }
}

/// # Safety
/// Called by the interpreter, with the GIL and without an exception.
unsafe extern "C" fn at_safe_point(_: *mut c_void) -> c_int {
    // SAFETY: as above.
    match boundary::run(|| Walked::Done, || unsafe { serve_wanted() }) {
        Walked::Raised => -1,
        Walked::Done | Walked::Failed => 0,
    }
}

/// # Safety
/// Called by the interpreter's `atexit`, with the GIL and without an exception.
unsafe extern "C" fn at_end(_: *mut c_void, _: *mut c_void) -> *mut c_void {
    IS_ENDING.store(true, Ordering::Release);
    if let Some(owners) = OWNERS.get()
        && IS_SUBSTITUTED.load(Ordering::Acquire)
        && !boundary::bypassed()
    {
        let start = Instant::now();
        let is_waiting = || IS_SUBSTITUTED.load(Ordering::Acquire) && start.elapsed() < LAST_WAIT;
        // SAFETY: as above.
        unsafe {
            owners.without_gil(|| {
                while is_waiting() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
    }
    // SAFETY: as above.
    let raised = boundary::run(|| Walked::Done, || unsafe { serve(bit(Occasion::End)) });
    match (raised, OWNERS.get()) {
        // SAFETY: the GIL is held.
        (Walked::Done | Walked::Failed, Some(owners)) => unsafe { owners.none() },
        _ => ptr::null_mut(),
    }
}

/// # Safety
/// The thread holds the GIL, and has no exception set.
unsafe fn serve(what: u64) -> Walked {
    let (Some(owners), Some(writer)) = (OWNERS.get(), trace::opened()) else {
        return Walked::Done;
    };
    if what & PREPARE != 0 {
        // SAFETY: the caller promises it.
        let prepared = unsafe {
            owners.at_end(at_end);
            owners.prepare()
        };
        if prepared != Walked::Done {
            return said(prepared);
        }
    }
    let occasions = what & !PREPARE;
    if occasions == 0 || !is_on() {
        return Walked::Done;
    }
    // SAFETY: the caller promises it.
    said(unsafe { record(owners, writer, occasions) })
}

/// Serves the wanted walks.
///
/// # Safety
/// As [`serve`].
unsafe fn serve_wanted() -> Walked {
    // Set first, so that the background thread sees one of the two flags at any time.
    IS_UNDER_WAY.store(true, Ordering::Release);
    // SAFETY: the caller promises it.
    let walked = unsafe { serve(WANTED.swap(0, Ordering::AcqRel)) };
    IS_UNDER_WAY.store(false, Ordering::Release);
    walked
}

/// Says once that no walk succeeds.
fn said(walked: Walked) -> Walked {
    if walked == Walked::Failed
        && !IS_OVER.swap(true, Ordering::Relaxed)
        && settings::config().log >= Log::Warn
    {
        say("failed to walk over Python's objects: blocks have no owners from now on");
    }
    walked
}

/// Walks, and records the owners that it found.
///
/// # Safety
/// As [`serve`].
unsafe fn record(owners: &Owners, writer: &Writer, occasions: u64) -> Walked {
    let start = Instant::now();
    let Ok(budget) = PACE.lock().map(|pace| pace.budget(occasions)) else {
        return Walked::Done;
    };
    let blocks = Blocks::of(writer);
    if blocks.is_empty() {
        return Walked::Done;
    }
    let bounds = blocks.bounds();
    let walk = Walk {
        blocks: &bounds,
        budget_s: budget.as_secs_f64(),
        is_thorough: Pace::is_thorough(occasions, budget),
    };
    let mut head = Head::default();
    // SAFETY: the caller promises it.
    let walked = unsafe {
        owners.walk(&walk, |text| {
            let mut lines = text.lines();
            head = lines.next().map(Head::of).unwrap_or_default();
            lines.for_each(|line| {
                // A line that cannot be read was not written by this library's program.
                let _ = told::record_owner(writer, &blocks, line);
            });
        })
    };
    let took = start.elapsed();
    if let Ok(mut pace) = PACE.lock() {
        pace.walked(live(writer), took, head.flags & walk::STOPPED != 0);
    }
    if walked == Walked::Done {
        recorded(writer);
        writer.record(&Event {
            thread: thread::tid(),
            address: main_occasion(occasions) as u64,
            size: head.objects,
            extra: [
                u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
                head.flags | if walk.is_thorough { walk::THOROUGH } else { 0 },
            ],
            ..Event::new(Kind::OwnersWalk, Class::Device)
        });
    }
    walked
}

/// Notes once in the trace that it has owners.
fn recorded(writer: &Writer) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| writer.fact("owners", "recorded"));
}

/// Returns the most important occasion.
fn main_occasion(occasions: u64) -> Occasion {
    let order = [Occasion::OutOfMemory, Occasion::Asked, Occasion::End];
    let first = order
        .into_iter()
        .find(|occasion| occasions & bit(*occasion) != 0);
    first.unwrap_or(Occasion::High)
}

/// Records the owner of the block at an address, as a library announces it.
pub fn announce(address: u64, name: &str) {
    if let Some(writer) = trace::opened()
        && settings::config().trace_facts != Facts::None
    {
        let block = Event {
            address,
            ..Event::new(Kind::Owner, Class::Device)
        };
        recorded(writer);
        let path = writer.intern(name);
        let kept = Kept::Announced;
        told::record(
            writer,
            &block,
            OwnerWords {
                path,
                root: 0,
                kept,
            },
        );
    }
}
