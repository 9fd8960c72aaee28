//! Work before the traces of a run are read: its autopsies are waited for, and its end is noted.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::child::End;
use super::killer;
use crate::recording::ENDED_BY;
use gpushim_trace::{Trace, add_fact};

/// Traces that are looked at: of a job with more, the others are as their processes left them.
const MOST: usize = 64;
/// The longest wait for autopsies, and the time between two looks.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(10);

/// The end of the program in words. `before`: the kernel's count of kills when it began.
pub fn in_words(end: End, before: Option<u64>) -> String {
    let is_counted = |before| killer::kills().is_some_and(|now| now > before);
    match end {
        End::Signal { number, .. } if number == libc::SIGKILL && before.is_some_and(is_counted) => {
            format!("{end}: the kernel's out-of-memory killer, as its control group counts")
        }
        end => end.to_string(),
    }
}

/// Waits for the autopsies of the traces, then notes the end of the program in its own trace.
///
/// The autopsies read traces that are compressed next, and print before the summary. Returns the
/// errors; each completes "failed to …".
pub fn conclude(traces: &[PathBuf], program: u32, end: &str) -> Vec<String> {
    let begin = Instant::now();
    let mut problems = Vec::new();
    for path in traces.iter().take(MOST) {
        let Ok(trace) = Trace::open_ring(path) else {
            continue;
        };
        let facts = trace.facts();
        let of = |key: &'static str| {
            let facts = facts.iter().filter(move |(name, _)| name == key);
            facts.filter_map(|(_, value)| value.parse::<u32>().ok())
        };
        for autopsy in of("autopsy") {
            while is_autopsy(autopsy) && begin.elapsed() < PATIENCE {
                sleep(LOOK);
            }
        }
        if of("pid").next() == Some(program) {
            problems.extend(
                add_fact(path, ENDED_BY, end)
                    .err()
                    .map(|error| error.to_string()),
            );
        }
    }
    problems
}

/// Returns true if the process of this number is an autopsy: numbers are given again.
fn is_autopsy(process: u32) -> bool {
    let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    words
        .split(|byte| *byte == 0)
        .any(|word| word == b"--autopsy")
}
