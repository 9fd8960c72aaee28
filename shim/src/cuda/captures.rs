//! The streams that capture: while one does, pools make no fences and keep memory that graphs may
//! hold.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use gpushim_alloc::Context;
use gpushim_alloc::gate::{self, Pass};

use crate::base::thread;
use crate::cuda::functions::real;
use crate::cuda::types::{CAPTURE_UNSUPPORTED, CONTEXT_IS_DESTROYED, CUresult, Handle, SUCCESS};
use crate::cuda::{context, streams};

/// The driver's `CU_STREAM_PER_THREAD`, which names no stream object.
pub const PER_THREAD: u64 = 2;
/// The driver's `CU_STREAM_CAPTURE_STATUS_INVALIDATED`.
pub const INVALIDATED: i32 = 2;

/// The driver's `CU_STREAM_CAPTURE_MODE_GLOBAL`, `..._THREAD_LOCAL` and `..._RELAXED`. While a
/// stream captures, the driver refuses calls that it holds for unsafe. The mode of a capture
/// selects the threads that are refused them. The mode of a thread selects the captures for which
/// it is refused them.
pub const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
pub const RELAXED: u32 = 2;

/// The identity of a stream, whichever handle named it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    handle: u64,
    /// The thread whose default stream it is; 0 for all others.
    thread: u64,
    /// The context of that default stream; `None` for all other streams.
    context: Option<Context>,
}

impl Stream {
    /// Returns the stream that a handle means in this thread. `per_thread`: as an argument of a
    /// `_ptsz` function.
    pub fn of(handle: Handle, per_thread: bool) -> Self {
        let handle = match handle as u64 {
            0 if per_thread => PER_THREAD,
            handle => handle,
        };
        let is_default = handle == PER_THREAD;
        Stream {
            handle,
            thread: if is_default { thread::serial() } else { 0 },
            context: is_default.then(context::current).flatten(),
        }
    }

    /// True if both may be the same stream: the context of one may be unknown, because the driver
    /// did not tell.
    fn may_be(&self, other: &Stream) -> bool {
        let contexts = self.context.zip(other.context);
        (self.handle, self.thread) == (other.handle, other.thread)
            && contexts.is_none_or(|(one, other)| one == other)
    }
}

/// A capture that is in progress.
pub struct Open {
    /// A number that no other capture has or had.
    pub number: u64,
    stream: Stream,
    /// The context of its stream.
    pub context: Option<Context>,
    mode: u32,
    /// The thread that began it: this library's number and the kernel's id.
    thread: u64,
    tid: u32,
    /// True once the pools know of it.
    counts: bool,
    /// True once the driver has invalidated it and that was reported.
    is_broken: bool,
    /// True while its stream is about to be destroyed.
    is_leaving: bool,
}

impl Open {
    /// Makes a capture that is about to begin on a stream, in a mode of the driver.
    pub fn new(stream: Handle, per_thread: bool, mode: u32) -> Open {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let stream = Stream::of(stream, per_thread);
        Open {
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            stream,
            // The stream's own context first: another one may be current.
            context: streams::context_of(stream.handle).or_else(context::current),
            mode,
            thread: thread::serial(),
            tid: thread::tid(),
            counts: false,
            is_broken: false,
            is_leaving: false,
        }
    }

    /// True if it is on the default stream of a thread that has ended: nothing can end it.
    fn is_left(&self) -> bool {
        self.stream.thread != 0 && !thread::lives(self.tid)
    }
}

static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// True if any stream captures.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::SeqCst) != 0
}

/// Longest time that a capture that begins waits for calls in flight: one of them may wait for the
/// device.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two checks.
const PAUSE: Duration = Duration::from_micros(20);

/// Begins a call for all streams of a context. The driver refuses such a call while a stream of the
/// context captures, in any mode. No capture begins until the call is complete. `born` as for
/// [`gate::enter_since`].
///
/// # Errors
/// The call must not be made: [`CAPTURE_UNSUPPORTED`] if a stream of the context captures,
/// [`CONTEXT_IS_DESTROYED`] if the context has ended.
#[inline]
pub fn enter(context: Context, born: u64) -> Result<Pass, CUresult> {
    enter_unless(context, born, || is_in(context))
}

/// Begins a call for one stream that is no default stream: captures of other streams may go on.
///
/// # Errors
/// [`CAPTURE_UNSUPPORTED`] if the stream itself captures, [`CONTEXT_IS_DESTROYED`] if the context
/// has ended.
pub fn enter_stream(context: Context, handle: u64) -> Result<Pass, CUresult> {
    let is_its = || {
        OPEN.lock()
            .is_ok_and(|open| open.iter().any(|open| open.stream.handle == handle))
    };
    enter_unless(context, u64::MAX, is_its)
}

#[inline]
fn enter_unless(
    context: Context,
    born: u64,
    forbids: impl FnOnce() -> bool,
) -> Result<Pass, CUresult> {
    // Sequentially consistent, as `COUNT` is: either a capture that begins sees this call, or this
    // call sees the capture.
    let pass = gate::enter_loud(context, born).ok_or(CONTEXT_IS_DESTROYED)?;
    if COUNT.load(Ordering::SeqCst) != 0 && forbids() {
        return Err(CAPTURE_UNSUPPORTED);
    }
    Ok(pass)
}

/// Runs `f` with the numbers of all captures in progress, each with true if [`broken`] has reported
/// it. None begins or ends meanwhile, so that a receiver misses none.
pub fn with_open<R>(f: impl FnOnce(&mut dyn Iterator<Item = (u64, bool)>) -> R) -> Option<R> {
    let open = OPEN.lock().ok()?;
    Some(f(&mut open
        .iter()
        .map(|open| (open.number, open.is_broken))))
}

/// True if a stream of the context captures.
pub fn is_in(context: Context) -> bool {
    let Ok(open) = OPEN.lock() else { return true };
    open.iter()
        .any(|open| open.context.is_none_or(|of| of == context))
}

/// Returns the captures because of which the driver would refuse the calling thread an allocation
/// or a free.
pub fn refusing() -> Vec<u64> {
    if !any() {
        return Vec::new();
    }
    let me = thread::serial();
    let Ok(open) = OPEN.lock() else {
        return Vec::new();
    };
    let refuses = |o: &&Open| match o.thread == me {
        true => o.mode != RELAXED,
        false => o.mode == GLOBAL,
    };
    let refusing = open.iter().filter(refuses);
    let refusing: Vec<(u64, bool)> = refusing.map(|o| (o.number, o.thread == me)).collect();
    drop(open);
    if refusing.is_empty() {
        return Vec::new();
    }
    let mode = mode_of_thread();
    let counts = |(_, mine): &(u64, bool)| mode != RELAXED && (*mine || mode != THREAD_LOCAL);
    let counting = refusing.into_iter().filter(counts);
    counting.map(|(number, _)| number).collect()
}

/// Lock held while streams are asked if they capture: none of them is destroyed meanwhile.
static ASKING: Mutex<()> = Mutex::new(());

/// Returns the captures that are now invalidated, or whose threads have ended. Each is reported
/// once.
pub fn broken() -> Vec<u64> {
    let Ok(_asking) = ASKING.lock() else {
        return Vec::new();
    };
    let me = thread::serial();
    let is_named = |o: &&Open| [0, me].contains(&o.stream.thread);
    let Ok(open) = OPEN.lock() else {
        return Vec::new();
    };
    let left = open.iter().filter(|o| !o.is_broken && o.is_left());
    let mut broken: Vec<u64> = left.map(|o| o.number).collect();
    let asked = open.iter().filter(|o| !o.is_broken && !o.is_leaving);
    let asked: Vec<(u64, u64, Option<Context>)> = asked
        .filter(is_named)
        .map(|o| (o.number, o.stream.handle, o.context))
        .collect();
    drop(open);
    let is_invalidated = |(_, handle, context): &(u64, u64, Option<Context>)| {
        let of = context.and_then(|context| Some((gate::enter(context)?, context)));
        let Some((_pass, context)) = of else {
            return false;
        };
        let mut status = 0;
        // SAFETY: `status` is ours to write; the stream lives as long as `ASKING` is held and its
        // context.
        let ask = || unsafe { real::cuStreamIsCapturing(*handle as Handle, &mut status) };
        // The handle of a default stream means the stream of the current context.
        let asked = context::with(context, || thread::call(ask));
        asked == Ok(SUCCESS) && status == INVALIDATED
    };
    let invalidated = asked.into_iter().filter(is_invalidated);
    broken.extend(invalidated.map(|(number, _, _)| number));
    if let Ok(mut open) = OPEN.lock() {
        let is_broken = |o: &&mut Open| broken.contains(&o.number);
        open.iter_mut()
            .filter(is_broken)
            .for_each(|o| o.is_broken = true);
    }
    broken
}

/// Marks a stream that is about to be destroyed, or that was not destroyed after all.
pub fn leaves(stream: Handle, is_leaving: bool) {
    if !any() {
        return;
    }
    let of = Stream::of(stream, false);
    let _asking = ASKING.lock();
    if let Ok(mut open) = OPEN.lock() {
        open.iter_mut()
            .filter(|o| o.stream == of)
            .for_each(|o| o.is_leaving = is_leaving);
    }
}

/// Returns the calling thread's own mode.
fn mode_of_thread() -> u32 {
    let mut mode = RELAXED;
    // SAFETY: `mode` is ours; each call swaps it with the thread's mode, and the second undoes the
    // first.
    let asked = thread::call(|| unsafe {
        match real::cuThreadExchangeStreamCaptureMode(&mut mode) {
            SUCCESS => {
                let mut back = mode;
                real::cuThreadExchangeStreamCaptureMode(&mut back)
            }
            error => error,
        }
    });
    if asked == SUCCESS { mode } else { GLOBAL }
}

/// True if a stream still captures after a failed end: the wrong thread asked, or for the wrong
/// stream.
pub fn still_capturing(stream: Handle, per_thread: bool) -> bool {
    let mut status = 0;
    // SAFETY: `status` is ours to write.
    let asked = thread::call(|| unsafe {
        if per_thread {
            real::cuStreamIsCapturing_ptsz(stream, &mut status)
        } else {
            real::cuStreamIsCapturing(stream, &mut status)
        }
    });
    asked == SUCCESS && status != 0
}

/// Runs a call in the relaxed mode: a capture would otherwise forbid the call, or be invalidated by
/// it. A capture may begin in another thread during the call.
pub fn relaxed<R>(f: impl FnOnce() -> R) -> R {
    let mut mode = RELAXED;
    // SAFETY: `mode` is ours; the call swaps it with the thread's mode.
    let swapped = unsafe { real::cuThreadExchangeStreamCaptureMode(&mut mode) } == SUCCESS;
    let result = f();
    if swapped {
        // SAFETY: as above; this puts the thread's own mode back.
        unsafe { real::cuThreadExchangeStreamCaptureMode(&mut mode) };
    }
    result
}

/// Adds a capture that is about to begin: [`with_open`] now includes it.
pub fn enters(open: Open) {
    if let Ok(mut all) = OPEN.lock() {
        all.push(open);
    }
}

/// Counts a capture that was added: no call that would invalidate it begins any more. Waits for
/// such calls in flight.
pub fn counts(number: u64) {
    if let Ok(mut open) = OPEN.lock() {
        let entered = open.iter_mut().filter(|open| open.number == number);
        entered.for_each(|open| open.counts = true);
        count(&open);
    }
    gate::wait_for_loud(PATIENCE, PAUSE);
}

/// Counts the captures that the pools know of. Calls that a capture unknown to them forbids may
/// still be made.
fn count(open: &[Open]) {
    let counting = open.iter().filter(|open| open.counts);
    COUNT.store(counting.count(), Ordering::SeqCst);
}

/// Selects the capture that ends.
#[derive(Clone, Copy)]
pub enum Which {
    /// The capture of this number.
    Number(u64),
    /// The capture of a stream.
    Of(Stream),
    /// A capture in this context.
    In(Context),
}

impl Which {
    fn fits(self, open: &Open) -> bool {
        match self {
            Which::Number(number) => open.number == number,
            Which::Of(stream) => open.stream == stream,
            Which::In(context) => open.context == Some(context),
        }
    }
}

/// Removes one capture and passes its number to `tell`; false if none fits. No other capture begins
/// or ends meanwhile.
pub fn close(which: Which, tell: impl FnOnce(u64)) -> bool {
    let Ok(mut open) = OPEN.lock() else {
        return false;
    };
    // The last one that began: on a stream that captures, a second capture does not begin.
    let Some(at) = open.iter().rposition(|open| which.fits(open)) else {
        return false;
    };
    let number = open.remove(at).number;
    count(&open);
    tell(number);
    true
}

/// Returns the only capture that may be on a stream, for a stream without a known capture.
pub fn only_of(stream: Stream) -> Option<u64> {
    let open = OPEN.lock().ok()?;
    let mut candidates = open.iter().filter(|open| open.stream.may_be(&stream));
    // With two candidates, the wrong choice would release memory that the other still uses. Both
    // stay open until their thread ends.
    match (candidates.next(), candidates.next()) {
        (Some(only), None) => Some(only.number),
        _ => None,
    }
}
