//! The state of the process of a recording, and the manner of its end.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::watch::traces_of;
use crate::recording::{Process, Recording};

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
        }
    }

    /// Returns the end in words, `killed by signal 9 (SIGKILL)`; `None` if it is not known.
    pub fn in_words(&self) -> Option<String> {
        Some(match (&self.by, self.state) {
            (Some(by), _) if by.starts_with("signal") => format!("killed by {by}"),
            (Some(by), _) => by.clone(),
            (None, State::Ended) => "by exit".to_string(),
            (None, State::Died) => {
                "without closing the trace: it was killed, crashed or called _exit".to_string()
            }
            (None, State::Running) => "not yet: the process runs".to_string(),
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
    match is_here(process) {
        true if traces_of(pid).contains(&path) => State::Running,
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

#[cfg(test)]
mod tests {
    use super::*;
    use gpushim_trace::{Trace, Writer, WriterOptions, add_fact};

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
