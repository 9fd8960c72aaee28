//! The state of the process of a recording, and the manner of its end.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::watch::traces_of;
use crate::recording::{Process, Recording, is_packed};
use gpushim_trace::Trace;

/// The most time between the start of a trace and the creation of its file.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The state of a process: does it run?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It ran when that was looked at.
    Running,
    /// It noted its end in the trace, or its parent was told an exit code.
    Ended,
    /// It ended without a note in the trace: by a signal, with its machine, or by `_exit` where no
    /// parent was asked.
    Died,
    /// It runs elsewhere, or left no number by which to look.
    #[default]
    Unknown,
}

/// The end of a process: its state, and the way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct End {
    /// Has it ended, as far as that is known?
    pub state: State,
    /// The way as `gpushim run` was told, `signal 9 (SIGKILL)`, or the exit code as the process noted it.
    pub by: Option<String>,
    /// True if the file is a copy, which may have been made before the end.
    #[serde(skip)]
    pub is_copy: bool,
}

impl End {
    /// By the facts of a recording, or else by the number of the process on the host where this is
    /// run.
    pub fn of(recording: &dyn Recording) -> End {
        let process = recording.process();
        // If the parent saw a signal, handlers of the end may have run before.
        let (told, noted) = (&process.ended_by, &process.ended);
        let has_code = |by: &String| by.starts_with("exit code");
        let state = match (told, noted) {
            (Some(by), _) if has_code(by) => State::Ended,
            (Some(_), _) => State::Died,
            (None, Some(_)) => State::Ended,
            // The note may be in a part that is cut off.
            (None, None) if recording.coverage().damaged => State::Unknown,
            (None, None) => state(recording.path(), &process),
        };
        End {
            state,
            by: told.clone().or(noted.clone().filter(has_code)),
            is_copy: is_copy(recording.path(), process.started_wall_ns),
        }
    }

    /// Returns the end in words, `killed by signal 9 (SIGKILL)`; `None` if it is not known.
    pub fn in_words(&self) -> Option<String> {
        const CUT: &str = "this copy was made before its end, and later events are not in it";
        let or_copied = |words: &str| match self.is_copy {
            true => format!("{words}, or {CUT}"),
            false => words.to_string(),
        };
        Some(match (&self.by, self.state) {
            (Some(by), _) if by.starts_with("signal") => format!("killed by {by}"),
            (Some(by), _) => by.clone(),
            (None, State::Ended) => "by exit".to_string(),
            (None, State::Died) => {
                or_copied("without closing the trace: it was killed, crashed or called _exit")
            }
            (None, State::Running) if self.is_copy => format!("not yet: the process runs, {CUT}"),
            (None, State::Running) => "not yet: the process runs".to_string(),
            (None, State::Unknown) if self.is_copy => {
                or_copied("not noted: the process was killed, crashed or called _exit")
            }
            (None, State::Unknown) => return None,
        })
    }
}

/// Looks for the process of a trace without a note of its end, by its number.
fn state(path: &Path, process: &Process) -> State {
    let Some(pid) = process.pid else {
        return State::Unknown;
    };
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let is_it = |mapped: &PathBuf| {
        let its = || Trace::open_ring(mapped).ok()?.process().started_wall_ns;
        *mapped == path || its().is_some_and(|its| Some(its) == process.started_wall_ns)
    };
    match is_here(process) {
        true if traces_of(pid).iter().any(is_it) => State::Running,
        true => State::Died,
        false => State::Unknown,
    }
}

/// Returns true if a process ran on this host, with numbers as this one sees them.
pub fn is_here(process: &Process) -> bool {
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let its = process
        .pid_namespace
        .as_deref()
        .filter(|its| !its.is_empty());
    process.host.as_deref() == Some(&*gpushim_config::host())
        && its.is_some_and(|its| Path::new(its) == namespace)
}

/// True if a file is younger than the trace in it, and so a copy. A packed one is none: it was made
/// after the end.
fn is_copy(path: &Path, started_wall_ns: Option<u64>) -> bool {
    let started = started_wall_ns.map(Duration::from_nanos);
    let started = started.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since + AT_ONCE));
    let created = std::fs::metadata(path).and_then(|meta| meta.created());
    let is_younger = created.ok().zip(started);
    is_younger.is_some_and(|(created, started)| created > started) && !is_packed(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushim_trace::{Writer, WriterOptions, add_fact};

    fn end(facts: &[(&str, &str)]) -> (State, Option<String>, Option<String>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.trace");
        let options = WriterOptions::default();
        drop(Writer::create(&path, &options).expect("a trace"));
        for (key, value) in facts {
            add_fact(&path, key, value).expect("added");
        }
        let end = End::of(&Trace::open(&path).expect("read"));
        (end.state, end.by.clone(), end.in_words())
    }

    #[test]
    fn the_parent_knows_best() {
        let text = |text: &str| Some(text.to_string());
        let zero = text("exit code 0");
        let told = |note, by| end(&[("ended", note), ("ended.by", by)]);
        let own = end(&[("ended", "exit code 0")]);
        assert_eq!(own, (State::Ended, zero.clone(), zero));
        assert_eq!(
            end(&[("ended", "exit")]),
            (State::Ended, None, text("by exit"))
        );
        let killed = told("exit code 0", "signal 6 (SIGABRT)");
        let words = text("killed by signal 6 (SIGABRT)");
        assert_eq!(killed, (State::Died, text("signal 6 (SIGABRT)"), words));
        let by = text("exit code 7");
        let code = end(&[("ended.by", "exit code 7")]);
        assert_eq!(code, (State::Ended, by.clone(), by));
        // This process has written it, and no longer has it mapped.
        let (state, by, words) = end(&[]);
        assert_eq!((state, by), (State::Died, None));
        assert!(words.is_some_and(|words| words.contains("killed, crashed")));
    }
}
