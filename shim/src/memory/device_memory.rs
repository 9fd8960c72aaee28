//! The driver's figures of each device's memory, sampled by the background thread. The part that
//! this library does not count belongs to other processes, contexts and code.

use std::mem;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use gpushim_alloc::Context;

use crate::base::thread;
use crate::cuda::functions::real;
use crate::cuda::types::SUCCESS;
use crate::cuda::{context, devices, nvml};
use crate::memory::{driver_pools, limit};
use crate::record::{outside, trace};

/// Time between two samples.
pub const PERIOD: Duration = Duration::from_secs(1);

/// A context that the process uses.
struct Watched {
    device: i32,
    context: Context,
    /// Free and total bytes when the context had been made; `None` once they are in the trace.
    made: Option<(u64, u64)>,
    /// Free and total bytes at the last sample.
    last: (u64, u64),
}

/// Contexts in which the driver can be asked. The lock is held during a question: the context does
/// not end meanwhile.
static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

/// Adds a context that was just made, and records the device's memory. Later samples may use it.
pub fn made(device: i32, context: Context) {
    let is_known = |known: &Watched| known.context == context;
    if WATCHED
        .lock()
        .is_ok_and(|watched| watched.iter().any(is_known))
    {
        return;
    }
    // Before the lock: no lock is held over a driver call of the host's thread.
    let figures = context::with(context, figures).ok().flatten();
    watch(device, context);
    if let Ok(mut watched) = WATCHED.lock()
        && let Some(known) = watched.iter_mut().find(|known| known.context == context)
    {
        known.made = figures;
        known.tell_made();
    }
}

/// Adds a context in which the driver can be asked about a device.
pub fn watch(device: i32, context: Context) {
    if let Ok(mut watched) = WATCHED.lock()
        && watched.iter().all(|known| known.context != context)
    {
        watched.push(Watched {
            device,
            context,
            made: None,
            last: (0, 0),
        });
    }
}

impl Watched {
    /// Records the device's memory when the context had been made, if there is a trace.
    fn tell_made(&mut self) {
        if let Some((free, total)) = self.made
            && outside::context_made(self.context, self.device, free, total)
        {
            self.made = None;
        }
    }
}

/// Returns free and total bytes of the device of the current context, by the driver's count.
fn figures() -> Option<(u64, u64)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both are ours to write.
    let asked = unsafe { real::cuMemGetInfo_v2(&mut free, &mut total) };
    (asked == SUCCESS).then_some((free as u64, total as u64))
}

/// Returns free bytes of the current device by the driver's count. `None` without a context or a
/// trace.
pub fn free_bytes() -> Option<u64> {
    context::current().filter(|_| !trace::is_off())?;
    thread::call(figures).map(|(free, _)| free)
}

/// Removes a context that is about to end. Returns its device if it was known, so that a refused
/// end can be undone.
pub fn unwatch(context: Context) -> Option<i32> {
    let mut watched = WATCHED.lock().ok()?;
    let at = watched.iter().position(|known| known.context == context)?;
    Some(watched.swap_remove(at).device)
}

/// True if the process has a context on a device.
pub fn is_watched(device: i32) -> bool {
    let is_there = |watched: &Vec<Watched>| watched.iter().any(|known| known.device == device);
    WATCHED.lock().is_ok_and(|watched| is_there(&watched))
}

/// Time between two questions for this process's part of a device: each takes milliseconds.
const SELDOM: Duration = Duration::from_secs(10);

/// Times at which the background thread asked.
#[derive(Default)]
pub struct Asked {
    /// The last time about all devices.
    last: Option<Instant>,
    /// The last time about this process, by device.
    process: Vec<(i32, Instant)>,
}

/// Asks about every device once per [`PERIOD`], and records changes.
pub fn sample(asked: &mut Asked) {
    if asked.last.is_some_and(|last| last.elapsed() < PERIOD) {
        return;
    }
    asked.last = Some(Instant::now());
    for sample in of_devices() {
        if sample.is_new {
            outside::device_memory(sample.device, sample.free, sample.total);
        }
        if sample.is_new || limit::is_shared(sample.device) {
            asked.about_process(&sample);
        }
    }
}

/// The driver's figures of a device in bytes.
struct Sample {
    device: i32,
    free: u64,
    total: u64,
    /// True if they are not those of the last sample.
    is_new: bool,
}

/// Returns the figures of all devices with a context.
fn of_devices() -> Vec<Sample> {
    let mut all: Vec<Sample> = Vec::new();
    let Ok(mut watched) = WATCHED.lock() else {
        return all;
    };
    for known in watched.iter_mut() {
        known.tell_made();
        let device = known.device;
        if all.iter().any(|sample| sample.device == device) {
            continue;
        }
        let Ok(Some((free, total))) = context::with(known.context, figures) else {
            continue;
        };
        let is_new = mem::replace(&mut known.last, (free, total)) != (free, total);
        all.push(Sample {
            device,
            free,
            total,
            is_new,
        });
    }
    all
}

impl Asked {
    /// Asks for this process's part of a device, if that was not asked lately. If memory was taken
    /// or freed meanwhile, the next sample asks again.
    fn about_process(&mut self, sample: &Sample) {
        let device = sample.device;
        let known = self.process.iter().position(|(of, _)| *of == device);
        let is_due = |(_, last): &(i32, Instant)| last.elapsed() >= SELDOM;
        if !known.and_then(|at| self.process.get(at)).is_none_or(is_due) {
            return;
        }
        let is_shared = limit::is_shared(device);
        if is_shared {
            // A pool of the driver shrinks without a call.
            driver_pools::count(device);
        }
        let counted = limit::Counted::of(device);
        if is_shared && counted.is_none() {
            return;
        }
        let bytes = devices::uuid(device)
            .and_then(|uuid| thread::call(|| nvml::used_by_this_process(uuid)));
        if let Some(bytes) = bytes {
            let is_quiet = now(device) == Some((sample.free, sample.total));
            if is_quiet {
                outside::process_memory(device, bytes, sample.free, sample.total);
            }
            let is_counted = counted.is_none_or(|counted| counted.uses(bytes));
            if !is_quiet || !is_counted {
                return;
            }
        }
        if let Some(at) = known {
            self.process.swap_remove(at);
        }
        self.process.push((device, Instant::now()));
    }
}

/// Returns free and total bytes of a device now.
fn now(device: i32) -> Option<(u64, u64)> {
    let watched = WATCHED.lock().ok()?;
    let known = watched.iter().find(|known| known.device == device)?;
    context::with(known.context, figures).ok().flatten()
}
