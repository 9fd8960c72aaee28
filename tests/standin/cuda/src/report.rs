//! Output of findings: to standard error, and to the file that `STANDIN_REPORT` names.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::env::settings;

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Number of findings that are written. Later ones are only counted, so that an error in a loop
/// does not flood the output.
const MOST_WRITTEN: u64 = 200;

/// Returns the number of findings so far.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Reports findings, one line each.
pub fn report(findings: &[String]) {
    for finding in findings {
        let before = COUNT.fetch_add(1, Ordering::Relaxed);
        if before >= MOST_WRITTEN {
            continue;
        }
        eprintln!("standin: {finding}");
        if let Some(path) = &settings().report {
            let line = format!("{finding}\n");
            let file = OpenOptions::new().append(true).create(true).open(path);
            // One write, so that lines of several processes do not mix.
            if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
                eprintln!("standin: failed to write {}: {error}", path.display());
            }
        }
    }
}
