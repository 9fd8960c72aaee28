//! The readers that follow the ring: the timeline, and in the mode `full` the spool.

use std::sync::Mutex;
use std::time::Duration;

use gpushim_config::TraceMode;
use gpushim_trace::spool::{SpoolLimits, SpoolOptions, Spooler};
use gpushim_trace::{TimelineFollower, Writer};

use crate::base::{settings, stderr};

/// Longest time that the end of the process waits for the last events to be written.
const PATIENCE: Duration = Duration::from_secs(5);

enum Follower {
    /// The background thread keeps the timeline.
    Timeline(Box<TimelineFollower>),
    /// A separate thread keeps the timeline and writes all events.
    Spool(Spooler),
}

static FOLLOWER: Mutex<Option<Follower>> = Mutex::new(None);

/// Reason for which the spool stopped, until it is reported. Its thread has no standard error: see
/// [`SpoolOptions::stopped`].
static STOPPED: Mutex<Option<String>> = Mutex::new(None);

/// Function for the bytes that the pools of a device hold from the driver; `None` while one of them
/// is at work.
type HeldNow = fn(u8) -> Option<u64>;

/// Begins to follow a trace that was just created. A timeline that has missed events calls `held`.
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

/// Returns the line which says that not all events are kept any more.
fn stopped(why: &str) -> String {
    format!("the spool of all events stops: {why}; the trace keeps the newest")
}

/// Reports once the reason for which the spool stopped.
fn say_stopped() {
    let why = STOPPED.lock().ok().and_then(|mut place| place.take());
    if let Some(why) = why {
        stderr::say(&why);
    }
}

/// Adds the new events to the timeline. True if the next call should come soon.
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

/// Writes the remaining events at the end of the process.
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
