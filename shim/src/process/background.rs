//! The background thread: flushes unused memory, keeps the trace's clock, and serves `gpushim
//! control`.

use std::sync::{Condvar, Mutex, Once};
use std::time::{Duration, Instant};

use gpushim_alloc::TICKS_TO_DECAY;
use gpushim_trace::background::{self, Background, is_last};

use crate::base::own_time::ANNOUNCEMENTS;
use crate::base::{boundary, ending, preloaded, settings};
use crate::memory::activity::Active;
use crate::memory::caches::{self, Cache};
use crate::memory::{context_drain, device_memory, elastic};
use crate::process::{autopsy, control};
use crate::record::{events, maintenance, shortages, thread_names, trace};

/// Lock held while the thread works, so that the end of the process waits for a call in progress.
static WORKING: Mutex<()> = Mutex::new(());
static WAKE: Condvar = Condvar::new();

/// Starts the thread, once.
pub fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        // Registered after the driver's own handlers, and so called before them.
        // SAFETY: the handler is an `extern "C"` function that does not unwind.
        unsafe { libc::atexit(stop) };
        if preloaded::is_ours() {
            ending::keep_code();
        }
        // Without it, no memory is trimmed and no clock calibrated, and the program runs on.
        let _ = background::spawn("gpushim", 256 << 10, run);
    });
}

/// Wakes the thread, without waiting for it. A thread that is about to sleep may miss that: then it
/// wakes by itself within a second.
pub fn wake() {
    WAKE.notify_all();
}

extern "C" fn stop() {
    if !ending::begin(&WORKING) {
        return;
    }
    WAKE.notify_all();
    // Short processes end before the first round.
    boundary::run(
        || (),
        || {
            autopsy::conclude();
            thread_names::record();
            elastic::conclude();
            if let Some(told) = ANNOUNCEMENTS.describe() {
                trace::fact("torch.announcements", &told);
            }
            maintenance::finish();
        },
    );
}

/// Pause of the thread while there is more work for the trace.
const SOON: Duration = Duration::from_millis(10);

/// Least pause of the thread before a waiting notice.
const SOONEST: Duration = Duration::from_millis(1);

/// Time between two checks if it is the last thread.
const LOOK: Duration = Duration::from_millis(200);

fn run() {
    let _background = Background::new();
    let decay = settings::config().decay;
    let tick = if decay.is_zero() {
        Duration::from_secs(10)
    } else {
        decay / TICKS_TO_DECAY
    };
    let (mut pause, mut last) = (SOON, Instant::now());
    let mut sampled = device_memory::Asked::default();
    let mut looked = Instant::now();
    loop {
        let Ok(working) = WORKING.lock() else { return };
        let pause_now = if shortages::is_noted() {
            Duration::ZERO
        } else {
            pause.min(tick)
        };
        let Ok((working, _)) = WAKE.wait_timeout(working, pause_now) else {
            return;
        };
        if ending::has_begun() {
            return;
        }
        if looked.elapsed() >= LOOK {
            if is_last() {
                return;
            }
            looked = Instant::now();
        }
        let is_due = last.elapsed() >= tick;
        let hurry = boundary::run(|| false, || work(is_due && !decay.is_zero(), &mut sampled));
        let again = boundary::run(|| None, autopsy::work);
        drop(working);
        // An idle process wakes up less and less often.
        pause = if hurry {
            SOON
        } else {
            (pause * 2).min(tick).min(device_memory::PERIOD)
        };
        pause = again.map_or(pause, |again| pause.min(again.max(SOONEST)));
        if is_due {
            last = Instant::now();
        }
    }
}

/// Does the work of one tick. True if there will be more soon.
fn work(decays: bool, sampled: &mut device_memory::Asked) -> bool {
    if decays {
        let _active = Active::begin();
        events::trimmed(caches::all().map(Cache::decay).sum());
        context_drain::decay();
    }
    device_memory::sample(sampled);
    thread_names::record();
    let fills = maintenance::run();
    // Several requests in a row are served without a long wait between them.
    control::serve() || fills
}
