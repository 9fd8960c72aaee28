//! Faults that `STANDIN_FAULT` plants: calls that fail or are slow without a cause.
//!
//! Every function of the driver passes through `api::call`, which asks this module before the
//! function runs.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::codes::{CUresult, Outcome, SUCCESS};
use crate::env::settings;

/// One planted fault: the calls that it hits and its effect on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Exported symbol of the function, or its prefix.
    name: String,
    /// True if `name` is a prefix of symbols.
    is_prefix: bool,
    /// True if calls count only after the mark (`standin_mark`), not from the start.
    from_mark: bool,
    /// Range of the calls that it hits, counted from 1.
    first: u64,
    last: u64,
    /// Code that they return. `CUDA_SUCCESS` keeps the code of the function.
    code: CUresult,
    /// True if the function runs and only its code is replaced.
    runs: bool,
    /// Times that pass before and after the call, in nanoseconds.
    before: u64,
    after: u64,
    /// Name of the threads whose calls count; none for all threads.
    thread: Option<String>,
}

impl Fault {
    /// Reads `NAME:WHEN:CODE[:OPTION…]`.
    ///
    /// - `NAME` may end in `*`.
    /// - `WHEN` is `N` (the N-th call), `N+` (from the N-th on) or `A-B`. After `@` it is counted
    ///   from the mark.
    /// - Options: `before=TIME`, `after=TIME`, `runs`, `thread=NAME`.
    pub fn read(text: &str, nanos: impl Fn(&str) -> Option<u64>) -> Option<Fault> {
        let mut parts = text.split(':');
        let (name, when, code) = (parts.next()?, parts.next()?, parts.next()?);
        let (name, is_prefix) = match name.strip_suffix('*') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let (when, from_mark) = match when.strip_prefix('@') {
            Some(when) => (when, true),
            None => (when, false),
        };
        let (first, last) = match (when.strip_suffix('+'), when.split_once('-')) {
            (Some(first), _) => (first.parse().ok()?, u64::MAX),
            (None, Some((first, last))) => (first.parse().ok()?, last.parse().ok()?),
            (None, None) => (when.parse().ok()?, when.parse().ok()?),
        };
        let mut fault = Fault {
            name: name.to_string(),
            is_prefix,
            from_mark,
            first,
            last,
            code: code.parse().ok()?,
            runs: false,
            before: 0,
            after: 0,
            thread: None,
        };
        for option in parts {
            match option.split_once('=') {
                Some(("before", time)) => fault.before = nanos(time)?,
                Some(("after", time)) => fault.after = nanos(time)?,
                Some(("thread", name)) => fault.thread = Some(name.to_string()),
                None if option == "runs" => fault.runs = true,
                _ => return None,
            }
        }
        (first > 0 && !name.is_empty()).then_some(fault)
    }

    fn is_of(&self, symbol: &str) -> bool {
        let named = match self.is_prefix {
            true => symbol.starts_with(&self.name),
            false => symbol == self.name,
        };
        named
            && self
                .thread
                .as_ref()
                .is_none_or(|name| *name == thread_name())
    }
}

/// Number of calls that each fault has seen.
fn seen() -> &'static [AtomicU64] {
    static SEEN: OnceLock<Vec<AtomicU64>> = OnceLock::new();
    SEEN.get_or_init(|| {
        settings()
            .faults
            .iter()
            .map(|_| AtomicU64::new(0))
            .collect()
    })
}

static MARKED: AtomicBool = AtomicBool::new(false);
/// Number of calls that a fault has hit so far, in all threads.
static HITS: AtomicU64 = AtomicU64::new(0);
/// Number of calls of each function, counted if `STANDIN_COUNT` is set.
static CALLS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

thread_local! {
    static HITS_HERE: Cell<u64> = const { Cell::new(0) };
}

/// Restarts the count of calls, for the faults that count from the mark.
pub fn mark() {
    for (fault, seen) in settings().faults.iter().zip(seen()) {
        if fault.from_mark {
            seen.store(0, Ordering::Relaxed);
        }
    }
    MARKED.store(true, Ordering::Release);
}

/// Returns the number of calls that a fault has hit: in all threads, and in the calling thread.
pub fn hits() -> (u64, u64) {
    (HITS.load(Ordering::Relaxed), HITS_HERE.get())
}

/// Returns a line for each function called so far, with the number of its calls.
pub fn calls() -> String {
    let calls = CALLS.lock();
    let lines = calls
        .iter()
        .map(|(name, count)| format!("{name} {count}\n"));
    lines.collect()
}

/// Runs the body of a driver function with the planted fault, if any.
#[inline]
pub fn run(symbol: &'static str, body: impl FnOnce() -> Outcome) -> CUresult {
    let settings = settings();
    let body = || body().err().unwrap_or(SUCCESS);
    if settings.faults.is_empty() && !settings.count {
        return body();
    }
    let Some(fault) = next(symbol) else {
        return body();
    };
    HITS.fetch_add(1, Ordering::Relaxed);
    HITS_HERE.set(HITS_HERE.get() + 1);
    pass(fault.before);
    let result = match fault.code {
        SUCCESS => body(),
        code => {
            if fault.runs {
                body();
            }
            code
        }
    };
    pass(fault.after);
    result
}

/// Returns the fault that hits this call, and counts the call.
fn next(symbol: &'static str) -> Option<&'static Fault> {
    let settings = settings();
    if settings.count {
        *CALLS.lock().entry(symbol).or_default() += 1;
    }
    let marked = MARKED.load(Ordering::Acquire);
    let mut hit = None;
    for (fault, seen) in settings.faults.iter().zip(seen()) {
        if !fault.is_of(symbol) || (fault.from_mark && !marked) {
            continue;
        }
        let number = seen.fetch_add(1, Ordering::Relaxed) + 1;
        if (fault.first..=fault.last).contains(&number) {
            hit = hit.or(Some(fault));
        }
    }
    hit
}

fn pass(nanos: u64) {
    if nanos > 0 {
        std::thread::sleep(Duration::from_nanos(nanos));
    }
}

fn thread_name() -> String {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes, with a nul at their end.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&name[..length]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Fault> {
        Fault::read(text, |time| time.strip_suffix("ms")?.parse().ok())
    }

    #[test]
    fn says_which_calls() {
        let hit = |text| read(text).map(|fault| (fault.from_mark, fault.first, fault.last));
        assert_eq!(hit("cuMemFree_v2:3:700"), Some((false, 3, 3)));
        assert_eq!(hit("cuMemFree_v2:3+:700"), Some((false, 3, u64::MAX)));
        assert_eq!(hit("cuMemFree_v2:@2-4:700"), Some((true, 2, 4)));
        for wrong in [
            "cuMemFree_v2",
            "cuMemFree_v2:0:1",
            "cuMemFree_v2:x:1",
            "a:1:b",
            ":1:2",
            "a:1:2:brakes",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn says_what_becomes_of_them() {
        let fault = read("cuEvent*:1:0:before=5ms:after=7ms:runs:thread=gpushim").unwrap();
        assert!(fault.is_prefix && fault.runs);
        assert_eq!((fault.code, fault.before, fault.after), (0, 5, 7));
        assert_eq!(fault.thread.as_deref(), Some("gpushim"));
        assert!(!fault.is_of("cuEventQuery"));
        assert!(read("cuEvent*:1:0").unwrap().is_of("cuEventQuery"));
        assert!(!read("cuEvent:1:0").unwrap().is_of("cuEventQuery"));
    }
}
