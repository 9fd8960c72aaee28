//! What follows the ring: the timeline, and in the mode `full` the spool.

use std::sync::Mutex;
use std::time::Duration;

use gpushim_config::TraceMode;
use gpushim_trace::spool::{SpoolLimits, SpoolOptions, Spooler};
use gpushim_trace::{TimelineFollower, Writer};

use crate::base::{settings, stderr};

/// How long the end of the process waits for the last events to be written.
const PATIENCE: Duration = Duration::from_secs(5);

enum Follower {
    /// The background thread keeps the timeline.
    Timeline(Box<TimelineFollower>),
    /// A thread of its own keeps the timeline and writes all events.
    Spool(Spooler),
}

static FOLLOWER: Mutex<Option<Follower>> = Mutex::new(None);

/// Why the spool stopped, until that is reported. Its thread has no standard error: see [`SpoolOptions::stopped`].
static STOPPED: Mutex<Option<String>> = Mutex::new(None);

/// What the pools of a device hold from the driver, in bytes; `None` while one of them is at work.
type HeldNow = fn(u8) -> Option<u64>;

/// Begins to follow a trace that was just created. `held` is asked by a timeline that has missed some of it.
pub fn start(writer: &Writer, held: HeldNow) {
    let config = settings::config();
    let follower = match config.trace_mode {
        TraceMode::Ring => timeline(writer, held),
        TraceMode::Full => {
            let options = SpoolOptions {
                limits: SpoolLimits {
                    max_bytes: config.spool_size,
                    floor: config.spool_floor,
                },
                stopped: Box::new(|why| {
                    if let Ok(mut place) = STOPPED.lock() {
                        *place = Some(stopped(why));
                    }
                }),
                held: Some(Box::new(held)),
                ..SpoolOptions::new()
            };
            match Spooler::start(writer, options) {
                Ok(spooler) => Follower::Spool(spooler),
                Err(error) => {
                    stderr::say(&format!("failed to {error}; it keeps the newest"));
                    timeline(writer, held)
                }
            }
        }
    };
    if let Ok(mut place) = FOLLOWER.lock() {
        *place = Some(follower);
    }
}

fn timeline(writer: &Writer, held: HeldNow) -> Follower {
    Follower::Timeline(Box::new(TimelineFollower::new(
        writer,
        Some(Box::new(held)),
    )))
}

/// The line that says that not all events are kept any more.
fn stopped(why: &str) -> String {
    format!("the spool of all events stops: {why}; the trace keeps the newest")
}

/// Says why the spool stopped, once.
fn say_stopped() {
    let why = STOPPED.lock().ok().and_then(|mut place| place.take());
    if let Some(why) = why {
        stderr::say(&why);
    }
}

/// Adds the new events to the timeline. True if that should be done again soon.
pub fn poll() -> bool {
    say_stopped();
    let Ok(mut follower) = FOLLOWER.lock() else {
        return false;
    };
    let Some(Follower::Timeline(timeline)) = follower.as_mut() else {
        return false;
    };
    let before = timeline.progress().1;
    timeline.poll();
    timeline.progress().1 != before
}

/// The process ends: what is left is written.
pub fn stop() {
    let follower = FOLLOWER.lock().ok().and_then(|mut place| place.take());
    match follower {
        Some(Follower::Timeline(mut timeline)) => timeline.flush_with(&mut |_| {}),
        Some(Follower::Spool(spooler)) => {
            spooler.stop(PATIENCE);
        }
        None => {}
    }
    say_stopped();
}
