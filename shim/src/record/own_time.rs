//! Time that the program's threads spend in this library, without that of the driver.

use gpushim_trace::OwnTime;

use crate::base::thread;
use crate::record::trace::opened;

/// Does the work of a call of the program, and adds its time to the trace if it is due.
#[inline]
pub fn timed<R>(work: impl FnOnce() -> R) -> R {
    match thread::counts_to_timed_call() {
        None => work(),
        Some(calls) => measured(calls, work),
    }
}

#[inline(never)]
fn measured<R>(calls: u32, work: impl FnOnce() -> R) -> R {
    let Some(writer) = opened() else {
        return work();
    };
    let (result, ticks) = thread::ticks_of(writer.clock(), work);
    writer.add_own_time(OwnTime {
        calls: calls.into(),
        timed: 1,
        ticks,
    });
    result
}

/// Returns the time of all calls in ns, and their number; zeros without a trace.
pub fn so_far() -> (u64, u64) {
    opened().map_or((0, 0), |writer| {
        let (own, ns) = writer.own_time();
        (ns, own.calls)
    })
}
