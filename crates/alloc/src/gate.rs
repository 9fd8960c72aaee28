//! Contexts that end, and this crate's driver calls in them. A release or an event query must not
//! reach the driver once its context is gone, whichever thread ends the context and whichever
//! thread calls.
//!
//! A call is in flight from [`enter`] until its [`Pass`] is dropped. A context that is about to end
//! is closed. Calls in flight are waited for, and new calls are refused, until a context is made
//! with the same handle.
//!
//! Some calls would invalidate a capture that begins meanwhile. [`enter_loud`] counts them
//! separately, and a capture that begins waits until there are none.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::handles::Context;

/// Number of counter groups for calls in flight. Contexts share groups.
const SLOTS: usize = 16;
/// Number of counters in a group. Threads mostly use different counters, and so do not contend for
/// a cache line.
const STRIPES: usize = 8;
/// Numbers that a call adds to its counter: an ordinary call, and a call that invalidates captures.
const CALL: u64 = 1;
const LOUD: u64 = 1 << 32 | CALL;
/// Mask for the number of calls in a counter.
const CALLS: u64 = (1 << 32) - 1;
/// Maximum time that the end of a context waits for calls in flight: one may wait for work that
/// never ends.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two looks at a counter.
const PAUSE: Duration = Duration::from_micros(50);
/// Maximum number of ended contexts to remember.
const REMEMBERED: usize = 1024;

#[repr(align(64))]
struct Slot(AtomicU64);

static IN_FLIGHT: [[Slot; STRIPES]; SLOTS] =
    [const { [const { Slot(AtomicU64::new(0)) }; STRIPES] }; SLOTS];

/// Last end of a context, by its handle.
struct End {
    number: u64,
    /// True if no context with this handle was made since.
    is_closed: bool,
}

/// Ends of contexts, by handle; `ANY` is true if there are any. A tree, because a hash table with
/// many insertions and removals grows to twice the size that it needs.
static CLOSED: Mutex<BTreeMap<u64, End>> = Mutex::new(BTreeMap::new());
static ANY: AtomicBool = AtomicBool::new(false);
/// Number of closed contexts so far.
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

/// Begins a call in a context. `None` if the context ends or has ended.
#[inline]
pub fn enter(context: Context) -> Option<Pass> {
    enter_since(context, u64::MAX)
}

/// Begins a call as [`enter`] does, on an object that was made in a context when [`ends`] returned
/// `born`. `None` also if that context ended and another has its handle.
#[inline]
pub fn enter_since(context: Context, born: u64) -> Option<Pass> {
    add(context, born, CALL)
}

/// Begins a call as [`enter_since`] does, for a call that invalidates captures.
#[inline]
pub fn enter_loud(context: Context, born: u64) -> Option<Pass> {
    add(context, born, LOUD)
}

#[inline]
fn add(context: Context, born: u64, added: u64) -> Option<Pass> {
    // The stacks of two threads are far from each other. Their addresses cost less than the
    // thread's number.
    let here = std::ptr::from_ref(&added).addr() as u64 >> 14;
    let slot = &slots(context)[mixed(here) % STRIPES].0;
    // Sequentially consistent, as the load of `ANY` is: either the end sees this call, or this call
    // sees the end.
    slot.fetch_add(added, Ordering::SeqCst);
    let pass = Pass { slot, added };
    lives(context, born).then_some(pass)
}

/// Waits for the calls that invalidate captures and began before this one, at most `patience` long.
/// Looks at each counter until it has seen it without such a call. Waiting for all counters to be
/// free at one moment might never end.
pub fn wait_for_loud(patience: Duration, pause: Duration) {
    let begun = Instant::now();
    for Slot(slot) in IN_FLIGHT.iter().flatten() {
        while slot.load(Ordering::SeqCst) > CALLS && begun.elapsed() < patience {
            thread::sleep(pause);
        }
    }
}

/// True if a call that invalidates captures is in flight.
#[cfg(test)]
fn any_loud() -> bool {
    let mut all = IN_FLIGHT.iter().flatten();
    all.any(|Slot(slot)| slot.load(Ordering::SeqCst) > CALLS)
}

/// True if a context still exists, in which an object was made when [`ends`] returned `born`.
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

/// Number that grows whenever a context is closed.
pub fn ends() -> u64 {
    ENDS.load(Ordering::Acquire)
}

/// Closes a context that is about to end: refuses new calls and waits for calls in flight. The
/// caller has none.
pub fn close(context: Context) {
    let number = ENDS.fetch_add(1, Ordering::AcqRel) + 1;
    if let Ok(mut closed) = CLOSED.lock() {
        if closed.len() >= REMEMBERED {
            // Contexts that ended long ago: nothing refers to them any more.
            closed.retain(|_, end| end.number + REMEMBERED as u64 / 2 > number);
        }
        let is_closed = true;
        closed.insert(context.0, End { number, is_closed });
        ANY.store(true, Ordering::SeqCst);
    }
    // One after the other: contexts share counters, and these need not all be zero at the same
    // time.
    let begun = Instant::now();
    for Slot(slot) in slots(context) {
        while slot.load(Ordering::SeqCst) & CALLS > 0 && begun.elapsed() < PATIENCE {
            thread::sleep(PAUSE);
        }
    }
}

/// Takes note of a new context. It may have the handle of a context that has ended.
pub fn made(context: Context) {
    with(|closed| {
        if let Some(end) = closed.get_mut(&context.0) {
            end.is_closed = false;
        }
    });
}

/// Takes note that a closed context did not end after all.
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
