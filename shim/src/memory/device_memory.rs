//! The driver's figures of each device's memory, sampled by the background thread: the part that we do not count
//! belongs to other processes, contexts and code.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use gpushim_alloc::Context;

use crate::cuda::context;
use crate::cuda::functions::real;
use crate::cuda::types::SUCCESS;
use crate::record::events;

/// Time between two samples.
pub const PERIOD: Duration = Duration::from_secs(1);

/// A context that the process uses.
struct Watched {
    device: i32,
    context: Context,
    /// Free and total bytes when last asked.
    last: (usize, usize),
}

/// The contexts that can be asked in. Held while one is: it does not end meanwhile.
static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

/// A device can be asked about in this context.
pub fn watch(device: i32, context: Context) {
    if let Ok(mut watched) = WATCHED.lock()
        && watched.iter().all(|known| known.context != context)
    {
        watched.push(Watched {
            device,
            context,
            last: (0, 0),
        });
    }
}

/// A context is about to end. Returns its device if it was known, to watch it again if it does not.
pub fn unwatch(context: Context) -> Option<i32> {
    let mut watched = WATCHED.lock().ok()?;
    let at = watched.iter().position(|known| known.context == context)?;
    Some(watched.swap_remove(at).device)
}

/// Asks about every device if it is time to, and records what has changed.
pub fn sample(last: &mut Option<Instant>) {
    if last.is_some_and(|last| last.elapsed() < PERIOD) {
        return;
    }
    *last = Some(Instant::now());
    let Ok(mut watched) = WATCHED.lock() else {
        return;
    };
    let mut asked = Vec::new();
    for known in watched.iter_mut() {
        if asked.contains(&known.device) {
            continue;
        }
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are ours to write.
        let answer = context::with(known.context, || unsafe {
            real::cuMemGetInfo_v2(&mut free, &mut total)
        });
        if answer != Ok(SUCCESS) {
            continue;
        }
        asked.push(known.device);
        if known.last != (free, total) {
            known.last = (free, total);
            events::device_memory(known.device, free as u64, total as u64);
        }
    }
}
