//! The summary beside each trace of a run: renewed while the program runs, and written last when it has ended.
//!
//! The library cannot write it: names of functions are found here, and its process may be killed at any moment. This one
//! may be killed, too; a summary has its name only once it is whole, so that the one of a minute ago is there then.

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
    /// Renews the summaries of the traces of a pattern, without those that were there before, each time that this time has
    /// passed; less often where it takes long.
    pub fn start(pattern: String, before: BTreeSet<PathBuf>, every: Duration) -> Renewal {
        let is_over = Arc::new((Mutex::new(false), Condvar::new()));
        let shared = Arc::clone(&is_over);
        // Without the thread the summaries are written at the end only. It gets none of the signals that `run` waits for.
        let _ = background::spawn("gpushim-summary", STACK, move || {
            // SAFETY: a system call with plain numbers; 0 is this thread, which then yields to the program.
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
            // All events of a long run would take minutes to read each time: the newest ones, the live blocks and the sums.
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

/// Writes the last summary of each trace. What stood in the way; completes "failed to …".
pub fn write_last(ranks: &[(PathBuf, RankSummary)]) -> Vec<String> {
    let written = ranks
        .iter()
        .map(|(trace, summary)| fleet::write(trace, summary));
    written
        .filter_map(|done| Some(done.err()?.to_string()))
        .collect()
}
