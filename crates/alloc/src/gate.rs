//! Contexts that end, and the calls that we make in them: a release or a question about an event must not
//! reach the driver once its context is gone, whichever thread ends it and whichever thread asks.
//!
//! A call of ours counts as in flight from [`enter`] on. A context that is about to end is closed: calls
//! in flight are waited for, and new ones are refused, until a context is made with the same handle.
//!
//! Calls that would invalidate a capture which begins meanwhile are counted beside, by [`enter_loud`]: a capture that begins
//! waits until there are none.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::handles::Context;

/// Counters of calls in flight of a context; contexts share them.
const SLOTS: usize = 16;
/// How many of them a context has: threads have different ones, mostly, and don't take the line from each other.
const STRIPES: usize = 8;
/// What a call adds to its counter, and what one adds that invalidates captures.
const CALL: u64 = 1;
const LOUD: u64 = 1 << 32 | CALL;
/// The calls of a counter.
const CALLS: u64 = (1 << 32) - 1;
/// How long the end of a context waits for calls in flight: one may wait for work that never ends.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks.
const PAUSE: Duration = Duration::from_micros(50);
/// Contexts that have ended to remember, at most.
const REMEMBERED: usize = 1024;

#[repr(align(64))]
struct Slot(AtomicU64);

static IN_FLIGHT: [[Slot; STRIPES]; SLOTS] =
    [const { [const { Slot(AtomicU64::new(0)) }; STRIPES] }; SLOTS];

/// The last end of a handle's contexts.
struct End {
    number: u64,
    /// No context with this handle was made since.
    is_closed: bool,
}

/// The ends of contexts, by handle; and whether there are any. A tree: a hash table whose entries come and go doubles
/// once more than it needs.
static CLOSED: Mutex<BTreeMap<u64, End>> = Mutex::new(BTreeMap::new());
static ANY: AtomicBool = AtomicBool::new(false);
/// Ends of contexts so far.
static ENDS: AtomicU64 = AtomicU64::new(0);

/// Fibonacci hashing: the upper bits of the product depend on all bits of the number.
fn mixed(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

fn slots(context: Context) -> &'static [Slot; STRIPES] {
    &IN_FLIGHT[mixed(context.0) % SLOTS]
}

/// A call in flight, until dropped.
#[must_use]
pub struct Pass {
    slot: &'static AtomicU64,
    added: u64,
}

impl Drop for Pass {
    #[inline]
    fn drop(&mut self) {
        self.slot.fetch_sub(self.added, Ordering::Release);
    }
}

/// A call of ours in a context begins; `None`: the context ends or has ended.
#[inline]
pub fn enter(context: Context) -> Option<Pass> {
    enter_since(context, u64::MAX)
}

/// As [`enter`], for what was made in a context when [`ends`] was this; `None` also if that context ended
/// and another has its handle.
#[inline]
pub fn enter_since(context: Context, born: u64) -> Option<Pass> {
    add(context, born, CALL)
}

/// As [`enter_since`], of a call that invalidates captures.
#[inline]
pub fn enter_loud(context: Context, born: u64) -> Option<Pass> {
    add(context, born, LOUD)
}

#[inline]
fn add(context: Context, born: u64, added: u64) -> Option<Pass> {
    // The stacks of two threads are far from each other: this costs less than to ask for the thread's number.
    let here = std::ptr::from_ref(&added).addr() as u64 >> 14;
    let slot = &slots(context)[mixed(here) % STRIPES].0;
    // Sequentially consistent, as the load of `ANY` is: either the end sees this call, or this call sees the end.
    slot.fetch_add(added, Ordering::SeqCst);
    let pass = Pass { slot, added };
    lives(context, born).then_some(pass)
}

/// Waits until every call is complete that began before this one and invalidates captures, at most
/// this long. Looks at each counter until it has seen it without such a call: to see all at once
/// without one would need a moment at which no thread is at it.
pub fn wait_for_loud(patience: Duration, pause: Duration) {
    let begun = Instant::now();
    for Slot(slot) in IN_FLIGHT.iter().flatten() {
        while slot.load(Ordering::SeqCst) > CALLS && begun.elapsed() < patience {
            thread::sleep(pause);
        }
    }
}

/// True while a call is in flight that invalidates captures.
#[cfg(test)]
fn any_loud() -> bool {
    let mut all = IN_FLIGHT.iter().flatten();
    all.any(|Slot(slot)| slot.load(Ordering::SeqCst) > CALLS)
}

/// Whether a context lives in which something was made when [`ends`] was this.
#[inline]
pub fn lives(context: Context, born: u64) -> bool {
    !ANY.load(Ordering::SeqCst) || has_not_ended(context, born)
}

fn has_not_ended(context: Context, born: u64) -> bool {
    let Ok(closed) = CLOSED.lock() else {
        return false;
    };
    let end = closed.get(&context.0);
    end.is_none_or(|end| !end.is_closed && end.number <= born)
}

/// A number that grows with each end of a context.
pub fn ends() -> u64 {
    ENDS.load(Ordering::Acquire)
}

/// A context is about to end: waits for calls in flight, and refuses new ones. The caller has none.
pub fn close(context: Context) {
    let number = ENDS.fetch_add(1, Ordering::AcqRel) + 1;
    if let Ok(mut closed) = CLOSED.lock() {
        if closed.len() >= REMEMBERED {
            // Those that ended long ago: what refers to them is gone.
            closed.retain(|_, end| end.number + REMEMBERED as u64 / 2 > number);
        }
        let is_closed = true;
        closed.insert(context.0, End { number, is_closed });
        ANY.store(true, Ordering::SeqCst);
    }
    // One after the other: calls in contexts that share a counter need not all be over at the same time.
    let begun = Instant::now();
    for Slot(slot) in slots(context) {
        while slot.load(Ordering::SeqCst) & CALLS > 0 && begun.elapsed() < PATIENCE {
            thread::sleep(PAUSE);
        }
    }
}

/// A context was made, perhaps with the handle of one that had ended.
pub fn made(context: Context) {
    with(|closed| {
        if let Some(end) = closed.get_mut(&context.0) {
            end.is_closed = false;
        }
    });
}

/// A context that was closed did not end after all.
pub fn stays(context: Context) {
    with(|closed| {
        closed.remove(&context.0);
    });
}

fn with(f: impl FnOnce(&mut BTreeMap<u64, End>)) {
    if ANY.load(Ordering::Acquire)
        && let Ok(mut closed) = CLOSED.lock()
    {
        f(&mut closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_end_of_a_context_waits_for_calls_in_flight_and_refuses_new_ones() {
        let context = Context(0x1230);
        let pass = enter(context).expect("it lives");
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                close(context);
                over.store(true, Ordering::SeqCst);
            });
            while enter(context).is_some() {
                thread::sleep(PAUSE);
            }
            thread::sleep(Duration::from_millis(20));
            assert!(!over.load(Ordering::SeqCst), "a call is in flight");
            drop(pass);
        });
        assert!(over.load(Ordering::SeqCst));
        assert!(enter(context).is_none());
        made(context);
        assert!(enter(context).is_some());
        assert!(enter_since(context, 0).is_none(), "of the one before");
        stays(context);
        assert!(enter_since(context, 0).is_some());
    }

    #[test]
    fn calls_that_invalidate_captures_are_counted_beside_the_others() {
        let context = Context(0x7890);
        let quiet = enter(context);
        assert!(!any_loud());
        let loud = enter_loud(context, u64::MAX);
        assert!(loud.is_some() && any_loud());
        drop(quiet);
        assert!(any_loud());
        drop(loud);
        assert!(!any_loud());
    }

    #[test]
    fn loud_calls_that_follow_each_other_keep_no_capture_waiting() {
        // In counters of their own.
        let contexts = [Context(0x5550), Context(0x5560)];
        assert_ne!(mixed(contexts[0].0) % SLOTS, mixed(contexts[1].0) % SLOTS);
        let (patience, over) = (Duration::from_secs(20), AtomicBool::new(false));
        let began = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut before = enter_loud(contexts[0], u64::MAX);
                began.wait();
                for n in 1.. {
                    // One is in flight at every moment, now in this counter and now in that.
                    before = enter_loud(contexts[n % 2], u64::MAX).or(before.take());
                    thread::sleep(PAUSE);
                    if over.load(Ordering::SeqCst) {
                        break;
                    }
                }
            });
            began.wait();
            let since = Instant::now();
            wait_for_loud(patience, PAUSE);
            over.store(true, Ordering::SeqCst);
            assert!(since.elapsed() < patience, "a call was always in flight");
        });
    }

    #[test]
    fn other_contexts_go_on() {
        close(Context(0x4560));
        assert!(enter(Context(0x4568)).is_some());
        assert!(!lives(Context(0x4560), u64::MAX));
    }
}
