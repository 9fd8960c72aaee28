//! The summary beside each trace of a run: renewed while the program runs, and written last at its
//! end.
//!
//! The library cannot write it: names of functions are found here, and its process may be killed at
//! any moment. This process may be killed, too. A summary gets its name only when it is complete,
//! so the last complete one remains.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::traces;
use crate::fleet::{self, RankSummary};
use crate::recording;
use gpushim_trace::background;

/// Renewals take at most 1/50 of the time of one core.
const SHARE: u32 = 50;
/// Bytes of the thread's stack: names of functions are found on it.
const STACK: usize = 8 << 20;

/// The thread that renews the summaries.
pub struct Renewal {
    is_over: Arc<(Mutex<bool>, Condvar)>,
}

impl Renewal {
    /// Renews the summaries of the traces of a pattern each time this interval has passed.
    ///
    /// Traces that existed before are left out. Renewals that take long are less frequent.
    pub fn start(pattern: String, before: BTreeSet<PathBuf>, every: Duration) -> Renewal {
        let is_over = Arc::new((Mutex::new(false), Condvar::new()));
        let shared = Arc::clone(&is_over);
        // If the thread cannot start, the summaries are written only at the end. The thread gets
        // none of the signals that `run` waits for.
        let _ = background::spawn("gpushim-summary", STACK, move || {
            // SAFETY: a system call with plain numbers; 0 is this thread, which then yields to the
            // program.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
            renew(&pattern, &before, every, &shared);
        });
        Renewal { is_over }
    }

    /// Nothing is written any more once this returns.
    pub fn stop(self) {
        let (is_over, changed) = &*self.is_over;
        if let Ok(mut is_over) = is_over.lock() {
            *is_over = true;
        }
        changed.notify_all();
    }
}

fn renew(
    pattern: &str,
    before: &BTreeSet<PathBuf>,
    every: Duration,
    (is_over, changed): &(Mutex<bool>, Condvar),
) {
    let mut pause = every;
    let mut recorded = BTreeMap::new();
    loop {
        let until = Instant::now() + pause;
        let Ok(mut over) = is_over.lock() else { return };
        while !*over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let Ok((waited, _)) = changed.wait_timeout(over, left) else {
                return;
            };
            over = waited;
        }
        if *over {
            return;
        }
        drop(over);
        let begin = Instant::now();
        for path in traces::existing(pattern).difference(before) {
            // All events of a long run would take minutes to read each time. Only the newest
            // events, the live blocks and the sums are read.
            let Ok(recording) = recording::open_ring(path) else {
                continue;
            };
            let now = recording.coverage().recorded;
            if recorded.insert(path.clone(), now) == Some(now) {
                continue;
            }
            let summary = RankSummary::read(&*recording);
            let Ok(over) = is_over.lock() else { return };
            if *over {
                return;
            }
            // The next one may succeed.
            let _ = fleet::write(path, &summary);
        }
        pause = every.max(begin.elapsed() * SHARE);
    }
}

/// Writes the last summary of each trace. Returns the errors; each completes "failed to …".
pub fn write_last(ranks: &[(PathBuf, RankSummary)]) -> Vec<String> {
    let written = ranks
        .iter()
        .map(|(trace, summary)| fleet::write(trace, summary));
    written
        .filter_map(|done| Some(done.err()?.to_string()))
        .collect()
}
