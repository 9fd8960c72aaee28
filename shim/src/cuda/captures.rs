//! Which streams are capturing: while one is, the pool makes no fences and keeps what graphs may hold.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpushim_core::gate::{self, Pass};
use gpushim_core::pool::Context;

use crate::base::thread;
use crate::cuda::context;
use crate::cuda::functions::real;
use crate::cuda::types::{CAPTURE_UNSUPPORTED, CONTEXT_IS_DESTROYED, CUresult, Handle, SUCCESS};
use crate::memory::{allocator, drain, paged, peer_access, pools};
use crate::record::events;

/// `CU_STREAM_PER_THREAD`, which names no stream object.
const PER_THREAD: u64 = 2;
/// `CU_STREAM_CAPTURE_STATUS_INVALIDATED`.
pub const INVALIDATED: i32 = 2;

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, `..._THREAD_LOCAL` and `..._RELAXED`: of a capture, which threads the
/// driver refuses calls that it holds for unsafe; of a thread, which captures it is refused them for.
pub const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
pub const RELAXED: u32 = 2;

/// A stream by what it is, whichever way it was named.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stream {
    handle: u64,
    /// The thread whose default stream it is; 0 for all others.
    thread: u64,
    /// The context in which it is that; `None` for all others.
    context: Option<Context>,
}

impl Stream {
    fn of(handle: Handle, per_thread: bool) -> Self {
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

    /// Whether both may be the same stream: of one of them the context may be unknown, because the driver did not tell.
    fn may_be(&self, other: &Stream) -> bool {
        let contexts = self.context.zip(other.context);
        (self.handle, self.thread) == (other.handle, other.thread)
            && contexts.is_none_or(|(one, other)| one == other)
    }
}

/// A capture that is open.
struct Open {
    /// A number that no other capture has or had.
    number: u64,
    stream: Stream,
    /// The context of its stream.
    context: Option<Context>,
    mode: u32,
    /// The thread that began it: by our number, and by the kernel's.
    thread: u64,
    tid: u32,
    /// The driver has invalidated it, and the pools were told.
    is_broken: bool,
    /// Its stream is about to be destroyed.
    is_leaving: bool,
}

impl Open {
    /// Whether it is of the default stream of a thread that has ended: nothing can end it.
    fn is_left(&self) -> bool {
        self.stream.thread != 0 && !thread::lives(self.tid)
    }
}

static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether any stream captures.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::SeqCst) != 0
}

/// How long a capture that begins waits for them: one may wait for the device.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it looks.
const PAUSE: Duration = Duration::from_micros(20);

/// A call of ours about all streams of a context begins, which the driver holds against every capture there, in
/// whatever mode; `born` as for [`gate::enter_since`]. No capture begins until it is over.
///
/// # Errors
/// [`CAPTURE_UNSUPPORTED`] if a stream of the context captures, [`CONTEXT_IS_DESTROYED`] if the context has ended: the call must
/// not be made.
#[inline]
pub fn enter(context: Context, born: u64) -> Result<Pass, CUresult> {
    // Sequentially consistent, as `COUNT` is: either a capture that begins sees this call, or this call sees it.
    let pass = gate::enter_loud(context, born).ok_or(CONTEXT_IS_DESTROYED)?;
    if COUNT.load(Ordering::SeqCst) != 0 && is_in(context) {
        return Err(CAPTURE_UNSUPPORTED);
    }
    Ok(pass)
}

/// Waits until no call is in flight that a capture would be invalidated by.
fn wait_for_quiet() {
    let begun = Instant::now();
    while gate::any_loud() && begun.elapsed() < PATIENCE {
        std::thread::sleep(PAUSE);
    }
}

/// Runs `f` with the numbers of the captures that are open, while none begins or ends: for what must hear
/// of all of them.
pub fn with_open<R>(f: impl FnOnce(&mut dyn Iterator<Item = u64>) -> R) -> Option<R> {
    let open = OPEN.lock().ok()?;
    Some(f(&mut open.iter().map(|open| open.number)))
}

/// Whether a stream of the context captures.
pub fn is_in(context: Context) -> bool {
    let Ok(open) = OPEN.lock() else { return true };
    open.iter()
        .any(|open| open.context.is_none_or(|of| of == context))
}

/// The captures because of which the driver would refuse the calling thread an allocation or a free.
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

/// Held while streams are asked whether they capture: none of them is destroyed meanwhile.
static ASKING: Mutex<()> = Mutex::new(());

/// Memory is short: what waits for captures that the driver has invalidated, or that nothing can end any more,
/// waits no longer. Whether there were any. The default streams of other threads cannot be asked about.
pub fn release_broken() -> bool {
    if !any() {
        return false;
    }
    let broken = broken();
    for number in &broken {
        if let Some(pool) = allocator::used() {
            pool.capture_broken(*number);
        }
        pools::all().for_each(|entry| entry.pool.capture_broken(*number));
    }
    !broken.is_empty()
}

/// The captures that turn out to be invalidated, or left by their threads, each once.
fn broken() -> Vec<u64> {
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
        // SAFETY: `status` is ours to write; the stream lives as long as `ASKING` is held and its context.
        let ask = || unsafe { real::cuStreamIsCapturing(*handle as Handle, &mut status) };
        // A default stream is the one of the context that is current.
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

/// A stream is about to be destroyed; or was not, after all.
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

/// The calling thread's own mode.
fn mode_of_thread() -> u32 {
    let mut mode = RELAXED;
    // SAFETY: `mode` is ours; each call swaps it with the thread's mode, and the second undoes the first.
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

/// A capture is about to begin, in a mode of the driver's. Returns its number.
pub fn begin(stream: Handle, per_thread: bool, mode: u32) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let stream_of = Stream::of(stream, per_thread);
    let began = Open {
        number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
        stream: stream_of,
        // Another one may be current.
        context: pools::context_of(stream_of.handle).or_else(context::current),
        mode,
        thread: thread::serial(),
        tid: thread::tid(),
        is_broken: false,
        is_leaving: false,
    };
    let number = began.number;
    if pools::any() || paged::is_enabled() || peer_access::any() {
        began.context.into_iter().for_each(drain::prepare);
    }
    if let Ok(mut open) = OPEN.lock() {
        open.push(began);
    }
    // Without the lock: the pools wait for calls of theirs in flight, which may ask what captures.
    if let Some(pool) = allocator::pool() {
        pool.capture_began(number);
    }
    pools::all().for_each(|entry| entry.pool.capture_began(number));
    // After the pools: none of them begins a call from here on that would be refused.
    if let Ok(open) = OPEN.lock() {
        COUNT.store(open.len(), Ordering::SeqCst);
    }
    wait_for_quiet();
    events::capture(true, stream as u64, 0);
    number
}

/// The capture of this number did not begin.
pub fn abandon(number: u64, stream: Handle) {
    close(|open| open.number == number, stream as u64, None);
    pools::release_owed();
}

/// A stream is gone, and the capture that it was in. Nothing happens if there is none.
pub fn stream_gone(stream: Handle) {
    if any() {
        close_of(Stream::of(stream, false), stream as u64, None);
        pools::release_owed();
    }
}

/// The driver was asked to end a capture, and made `graph` of it or nothing.
pub fn ended(stream: Handle, per_thread: bool, graph: Option<u64>) {
    if graph.is_none() && still_capturing(stream, per_thread) {
        return;
    }
    close_of(Stream::of(stream, per_thread), stream as u64, graph);
    pools::release_owed();
}

/// A context ended with the captures of its streams.
pub fn context_gone(gone: Context) {
    while any() && close(|open| open.context == Some(gone), 0, None) {}
}

/// Closes captures of default streams whose threads have ended: nothing can end those any more, nor use
/// what they recorded. For when memory was not at hand.
pub fn close_of_ended_threads() {
    while any() && close(Open::is_left, PER_THREAD, None) {}
}

/// Closes the capture of a stream, or the only one that may be of it.
fn close_of(stream: Stream, name: u64, graph: Option<u64>) {
    if close(|open| open.stream == stream, name, graph) {
        return;
    }
    let Ok(open) = OPEN.lock() else { return };
    let mut candidates = open.iter().filter(|open| open.stream.may_be(&stream));
    // Of two, the wrong one would let go of what the other still uses: both wait for the end of their thread.
    let only = match (candidates.next(), candidates.next()) {
        (Some(only), None) => Some(only.number),
        _ => None,
    };
    drop(open);
    if let Some(number) = only {
        close(|open| open.number == number, name, graph);
    }
}

/// Takes one capture out; false if none fits.
fn close(fits: impl Fn(&Open) -> bool, stream: u64, graph: Option<u64>) -> bool {
    let Ok(mut open) = OPEN.lock() else {
        return false;
    };
    // The last one that began: where a stream captures, a second capture of it does not begin.
    let Some(at) = open.iter().rposition(fits) else {
        return false;
    };
    let number = open.remove(at).number;
    COUNT.store(open.len(), Ordering::Release);
    if let Some(pool) = allocator::pool() {
        pool.capture_ended(number, graph);
    }
    pools::all().for_each(|entry| entry.pool.capture_ended(number, graph));
    drop(open);
    events::capture(false, stream, graph.unwrap_or(0));
    true
}

/// A failed end leaves some captures open: the wrong thread asked, or the wrong stream.
fn still_capturing(stream: Handle, per_thread: bool) -> bool {
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
