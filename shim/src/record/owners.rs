//! Who keeps each block: when the program's objects are walked, and what the trace gets of it.
//!
//! The background thread has the interpreter's main thread walk between two of its instructions: when the run is twice
//! as long as at the last walk, and when more memory is live than ever. All these walks together take at most a hundredth of the
//! time since the trace was opened, or [`ALWAYS`].

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once, OnceLock};
use std::time::{Duration, Instant};

use gpushim_config::{Announcements, Log};
use gpushim_python::{Owners, Walk, Walked};
use gpushim_trace::background::{self, Background};
use gpushim_trace::{Class, Event, Facts, Kept, Kind, Layer, Occasion, OwnerWords, Writer, walk};

use crate::base::stderr::say;
use crate::base::{boundary, settings, thread};
use crate::record::{python, trace};

/// The part of a run that walks at new highs may take: one in this many.
const SHARE: u32 = 100;
/// What walks may take in a run of any length.
const ALWAYS: Duration = Duration::from_millis(250);
/// One of those that [`ALWAYS`] allows.
const ONE: Duration = Duration::from_millis(120);
/// When the first walk is made.
const FIRST_AT: Duration = Duration::from_millis(200);
/// How long a run is short: each tick may be the last before its end.
const SHORT: Duration = Duration::from_secs(10);
/// What the first walk is expected to take.
const EXPECTED: Duration = Duration::from_millis(30);
/// How long a walk before the end may take, if the share allows no more.
const AT_END: Duration = Duration::from_millis(150);
/// How long one after an out-of-memory may take.
const AFTER_SHORTAGE: Duration = Duration::from_secs(1);
/// How long one may take that was asked for.
const ASKED: Duration = Duration::from_secs(10);
/// Out-of-memory errors closer together get one walk.
const BETWEEN_SHORTAGES: Duration = Duration::from_secs(10);
/// A new high is this many bytes above the last, and this part of it.
const STEP: u64 = 1 << 18;
const PART: u64 = 256;

/// The occasions for which the main thread will walk at its next safe point: a bit for each.
static WANTED: AtomicU64 = AtomicU64::new(0);
/// Set in [`WANTED`]: nothing but that the end of the interpreter gets a walk.
const PREPARE: u64 = 1 << 63;
/// No walk succeeds any more.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// How long the main thread has for a walk that was asked for. One that waits in C has no safe point: another thread
/// walks then.
const PATIENCE: Duration = Duration::from_secs(1);

/// A thread of ours walks, or is about to.
static IS_SUBSTITUTED: AtomicBool = AtomicBool::new(false);
/// The interpreter is about to end: no other thread may wait for its GIL.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// How long the end waits for a thread of ours at most.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// The walk of the process's interpreter, once it was found.
static OWNERS: OnceLock<Owners> = OnceLock::new();

static PACE: Mutex<Pace> = Mutex::new(Pace::new());

/// How much was walked so far.
struct Pace {
    /// When the trace was first looked at.
    start: Option<Instant>,
    /// Live bytes at the last walk.
    high: u64,
    /// How long the run was at the last walk.
    last: Duration,
    /// Time of all walks.
    spent: Duration,
    /// What the next walk is expected to take.
    expected: Duration,
    /// When a walk was last made after an out-of-memory.
    shortage: Option<Instant>,
    /// Whether the end of the interpreter gets a walk.
    is_prepared: bool,
    /// Since when a walk that was asked for is known not to be made.
    asked: Option<Instant>,
}

impl Pace {
    const fn new() -> Pace {
        Pace {
            start: None,
            high: 0,
            last: Duration::ZERO,
            spent: Duration::ZERO,
            expected: EXPECTED,
            shortage: None,
            is_prepared: false,
            asked: None,
        }
    }

    fn elapsed(&self) -> Duration {
        self.start.map_or(Duration::ZERO, |start| start.elapsed())
    }

    /// Time that walks may still take of their share of the run.
    fn left(&self) -> Duration {
        (self.elapsed() / SHARE).saturating_sub(self.spent)
    }

    /// Time that the next walk may take of what each run has.
    fn left_always(&self) -> Duration {
        ALWAYS.saturating_sub(self.spent).min(ONE)
    }

    /// Whether a walk is due with so many live bytes.
    fn is_due(&self, live: u64) -> bool {
        let above = |bytes: u64| live >= self.high.saturating_add(bytes.max(STEP));
        let is_far = self.elapsed() >= self.last * 2 || above(self.high / 2);
        let left = match is_far {
            true => self.left_always().max(self.left()),
            false => self.left(),
        };
        let is_new = is_far || above(self.high / PART);
        is_new && left >= self.expected && self.elapsed() >= FIRST_AT
    }

    /// How long a walk for these occasions may take.
    fn budget(&self, occasions: u64) -> Duration {
        let of = |occasion: Occasion, time: Duration| match occasions & bit(occasion) {
            0 => Duration::ZERO,
            _ => time,
        };
        of(Occasion::Asked, ASKED)
            .max(of(Occasion::OutOfMemory, AFTER_SHORTAGE))
            .max(of(Occasion::End, AT_END))
            .max(self.left())
            .max(self.left_always())
    }

    /// A walk ended.
    fn walked(&mut self, live: u64, took: Duration, was_stopped: bool) {
        self.high = self.high.max(live);
        self.last = self.elapsed();
        self.spent += took;
        self.expected = if was_stopped { took * 2 } else { took };
    }
}

fn bit(occasion: Occasion) -> u64 {
    1 << occasion as u8
}

/// Whether the process's owners are recorded.
fn is_on() -> bool {
    let config = settings::config();
    config.owners == Announcements::Auto
        && config.trace_facts != Facts::None
        && !IS_OVER.load(Ordering::Relaxed)
}

/// Asks for a walk if there is reason to: at each tick of the background thread. True if the next tick should come soon.
pub fn consider(writer: &Writer) -> bool {
    is_on() && PACE.lock().is_ok_and(|mut pace| pace.consider(writer))
}

impl Pace {
    fn consider(&mut self, writer: &Writer) -> bool {
        self.start.get_or_insert_with(Instant::now);
        if WANTED.load(Ordering::Relaxed) != 0 {
            let asked = *self.asked.get_or_insert_with(Instant::now);
            if asked.elapsed() >= PATIENCE {
                self.asked = None;
                substitute();
            }
            return false;
        }
        self.asked = None;
        if !self.is_prepared {
            self.is_prepared = ask_for(PREPARE);
        } else if self.is_due(live(writer)) {
            ask_for(bit(Occasion::High));
        }
        self.is_prepared && self.elapsed() < SHORT
    }
}

/// Asks for a walk. False: owners are not recorded, or there is no interpreter.
pub fn ask(occasion: Occasion) -> bool {
    is_on() && ask_for(bit(occasion))
}

/// A request could not be met: asks for a walk, unless one was just made for another.
pub fn out_of_memory() {
    if !is_on() {
        return;
    }
    if let Ok(mut pace) = PACE.try_lock()
        && pace
            .shortage
            .is_none_or(|last| last.elapsed() > BETWEEN_SHORTAGES)
    {
        pace.shortage = Some(Instant::now());
        ask_for(bit(Occasion::OutOfMemory));
    }
}

fn ask_for(what: u64) -> bool {
    let Some(owners) = OWNERS.get().or_else(|| {
        let found = python::owners()?;
        Some(OWNERS.get_or_init(|| found))
    }) else {
        return false;
    };
    if WANTED.fetch_or(what, Ordering::AcqRel) != 0 {
        return true;
    }
    let is_asked = owners.at_safe_point(at_safe_point);
    if !is_asked {
        WANTED.fetch_and(!what, Ordering::AcqRel);
    }
    is_asked
}

/// Has a thread of ours walk in place of the main thread.
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
                let what = WANTED.swap(0, Ordering::AcqRel);
                // SAFETY: this thread has the GIL, and no exception: it ran nothing. No signal handler runs on it.
                boundary::run(|| Walked::Done, || unsafe { serve(what) });
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
    let act = || unsafe { serve(WANTED.swap(0, Ordering::AcqRel)) };
    match boundary::run(|| Walked::Done, act) {
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

/// Says once that no walk succeeds.
fn said(walked: Walked) -> Walked {
    if walked == Walked::Failed
        && !IS_OVER.swap(true, Ordering::Relaxed)
        && settings::config().log >= Log::Warn
    {
        say("failed to walk over Python's objects: blocks have no owners from here on");
    }
    walked
}

/// Walks, and records what it found.
///
/// # Safety
/// As [`serve`].
unsafe fn record(owners: &Owners, writer: &Writer, occasions: u64) -> Walked {
    let start = Instant::now();
    let Ok(budget) = PACE.lock().map(|pace| pace.budget(occasions)) else {
        return Walked::Done;
    };
    let blocks = Blocks::of(writer);
    if blocks.all.is_empty() {
        return Walked::Done;
    }
    let bounds: Vec<u64> = blocks
        .all
        .iter()
        .flat_map(|block| [block.address, block.address.saturating_add(block.size)])
        .collect();
    let walk = Walk {
        blocks: &bounds,
        budget_s: budget.as_secs_f64(),
        is_thorough: occasions & !bit(Occasion::High) != 0,
    };
    let mut head = Head::default();
    // SAFETY: the caller promises it.
    let walked = unsafe {
        owners.walk(&walk, |text| {
            let mut lines = text.lines();
            head = lines.next().map(Head::of).unwrap_or_default();
            lines.for_each(|line| {
                // A line that cannot be read is of another program than ours.
                let _ = record_owner(writer, &blocks, line);
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
                head.flags,
            ],
            ..Event::new(Kind::OwnersWalk, Class::Device)
        });
    }
    walked
}

/// Tells readers that the trace has owners.
fn recorded(writer: &Writer) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| writer.fact("owners", "recorded"));
}

/// The occasion that says most.
fn main_occasion(occasions: u64) -> Occasion {
    let order = [Occasion::OutOfMemory, Occasion::Asked, Occasion::End];
    let first = order
        .into_iter()
        .find(|occasion| occasions & bit(*occasion) != 0);
    first.unwrap_or(Occasion::High)
}

/// The first line of a walk's text.
#[derive(Default)]
struct Head {
    objects: u64,
    flags: u64,
}

impl Head {
    fn of(line: &str) -> Head {
        let mut numbers = line
            .split('\t')
            .map(|number| number.parse::<u64>().unwrap_or(0));
        let objects = numbers.next().unwrap_or(0);
        let [_, stopped, collects] = [(); 3].map(|()| numbers.next().unwrap_or(0));
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        Head {
            objects,
            flags: flag(stopped == 1, walk::STOPPED) | flag(collects == 0, walk::NO_COLLECTOR),
        }
    }
}

/// Records what one line says of a block.
fn record_owner(writer: &Writer, blocks: &Blocks, line: &str) -> Option<()> {
    let mut parts = line.splitn(4, '\t');
    let address = u64::from_str_radix(parts.next()?, 16).ok()?;
    let kept = match parts.next()? {
        "n" => Kept::Named,
        "p" => Kept::Parameter,
        "b" => Kept::Buffer,
        "g" => Kept::Gradient,
        "s" => Kept::OptimizerState,
        "a" => Kept::Graph,
        "u" => Kept::Unreachable,
        _ => Kept::Native,
    };
    let block = blocks.with(address)?;
    let text = |text: &str| match text {
        "" => 0,
        text => writer.intern(text),
    };
    let (path, root) = (text(parts.next()?), text(parts.next()?));
    owner(writer, block, OwnerWords { path, root, kept });
    Some(())
}

fn owner(writer: &Writer, block: &Event, words: OwnerWords) {
    writer.record(&Event {
        device: block.device,
        thread: thread::tid(),
        address: block.address,
        size: block.size,
        extra: words.pack(),
        ..Event::new(Kind::Owner, block.class)
    });
}

/// A library says who keeps the block at an address.
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
        owner(
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

/// Live blocks of device memory, by address: a framework's tensors, and what the driver handed out and has none in it.
struct Blocks {
    all: Vec<Event>,
}

impl Blocks {
    fn of(writer: &Writer) -> Blocks {
        let (mut tensors, mut others) = (Vec::new(), Vec::new());
        writer.each_live(|event| {
            if event.size == 0 {
                return;
            }
            match event.class {
                Class::Tensor => tensors.push(*event),
                Class::Device | Class::Pitched | Class::PoolAsync | Class::Managed => {
                    others.push(*event);
                }
                _ => {}
            }
        });
        tensors.sort_unstable_by_key(|block| block.address);
        let has_tensor = |block: &Event| {
            let at = tensors.partition_point(|tensor| tensor.address < block.address);
            let end = block.address.saturating_add(block.size);
            tensors.get(at).is_some_and(|tensor| tensor.address < end)
        };
        others.retain(|block| !has_tensor(block));
        let mut all = tensors;
        all.append(&mut others);
        all.sort_unstable_by_key(|block| block.address);
        // Of blocks that came and went meanwhile, two may be at one address.
        let mut end = 0;
        all.retain(|block| {
            let is_apart = block.address >= end;
            if is_apart {
                end = block.address.saturating_add(block.size);
            }
            is_apart
        });
        Blocks { all }
    }

    /// The block that contains an address.
    fn with(&self, address: u64) -> Option<&Event> {
        let after = self.all.partition_point(|block| block.address <= address);
        let block = self.all.get(after.checked_sub(1)?)?;
        (address < block.address.saturating_add(block.size)).then_some(block)
    }
}

/// Live bytes: of tensors, if a framework announces them.
fn live(writer: &Writer) -> u64 {
    let sum = |layer| writer.live_bytes(layer).iter().sum::<u64>();
    match sum(Layer::Tensor) {
        0 => sum(Layer::Device),
        tensors => tensors,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// After a run of so long, of which walks took this.
    fn pace(elapsed: Duration, spent: Duration) -> Pace {
        Pace {
            start: Instant::now().checked_sub(elapsed),
            spent,
            ..Pace::new()
        }
    }

    #[test]
    fn walks_at_new_highs_take_their_share() {
        let mut pace = pace(100 * SECOND, SECOND / 4);
        pace.walked(256 << 20, SECOND / 4, false);
        // A 256th more, and not less than that.
        assert!(pace.is_due(257 << 20) && !pace.is_due(256 << 20));
        pace.walked(260 << 20, SECOND / 2, false);
        assert!(!pace.is_due(1 << 40), "the share is used up");
    }

    #[test]
    fn short_runs_have_a_few_walks() {
        assert!(!pace(FIRST_AT / 2, Duration::ZERO).is_due(1 << 30));
        let mut pace = pace(SECOND, Duration::ZERO);
        assert!(pace.is_due(0));
        assert_eq!(pace.budget(bit(Occasion::High)), ONE);
        pace.walked(0, Duration::from_millis(100), false);
        assert!(!pace.is_due(0), "not twice as long yet");
        pace.last = SECOND / 2;
        assert!(pace.is_due(0));
        pace.walked(0, Duration::from_millis(130), false);
        pace.last = SECOND / 2;
        assert!(!pace.is_due(0), "all that each run has is used up");
    }

    #[test]
    fn what_is_expected_doubles_after_a_walk_that_was_stopped() {
        let mut pace = Pace::new();
        pace.walked(1, Duration::from_millis(40), true);
        assert_eq!(pace.expected, Duration::from_millis(80));
        pace.walked(1, Duration::from_millis(70), false);
        assert_eq!(pace.expected, Duration::from_millis(70));
    }

    #[test]
    fn heads_are_read() {
        let head = Head::of("4711\t1000\t1\t0");
        assert_eq!(head.objects, 4711);
        assert_eq!(head.flags, walk::STOPPED | walk::NO_COLLECTOR);
        assert_eq!(Head::of("3\t9\t0\t1").flags, 0);
    }
}
