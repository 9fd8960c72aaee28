//! The process that is to be asked, and its trace.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use gpushim_trace::control::{Answer, Asker, Busy, Request};

use crate::error::{Error, Result, failed};
use crate::top::traces_of;

/// Time in which a process must answer. Its thread reads requests at least once a second.
const PATIENCE: Duration = Duration::from_secs(15);

/// A process that writes a trace.
#[derive(Debug)]
pub struct Target {
    pid: u32,
    asker: Asker,
}

impl Target {
    /// The process with this id.
    ///
    /// # Errors
    /// There is no such process, it is another user's, or it writes no trace; completes "failed to
    /// …".
    pub fn find(pid: u32) -> Result<Target> {
        let of_process = |why: String| failed!("control process {pid}: {why}");
        let folder = format!("/proc/{pid}");
        let Ok(meta) = fs::metadata(&folder) else {
            return Err(of_process(
                "there is no such process; `gpushim top --once` lists those that record".into(),
            ));
        };
        if has_ended(pid) {
            return Err(of_process(
                "it has ended; `gpushim report` reads what it recorded".into(),
            ));
        }
        // SAFETY: it takes nothing and cannot fail.
        let user = unsafe { libc::geteuid() };
        if user != 0 && meta.uid() != user && fs::read(format!("{folder}/maps")).is_err() {
            return Err(of_process(format!(
                "it is a process of user {}; only that user and root may",
                meta.uid()
            )));
        }
        let mut other = None;
        let mut problem = None;
        for path in traces_of(pid) {
            match Asker::open(&path) {
                Ok(asker) if asker.owner() != meta.uid() && meta.uid() != 0 => {
                    problem = Some(of_process(format!(
                        "its trace {} belongs to another user",
                        path.display()
                    )));
                }
                Ok(asker) => match asker.process() {
                    Some(writer) if !ids_of(pid).contains(&writer) => other = Some(writer),
                    _ => return Ok(Target { pid, asker }),
                },
                Err(error) => problem = Some(error.into()),
            }
        }
        if let Some(writer) = other {
            return Err(of_process(format!(
                "it was forked by process {writer}, which writes the trace, and does not record; control {writer}"
            )));
        }
        Err(problem.unwrap_or_else(|| of_process(without_trace(pid))))
    }

    /// Asks the process, and waits for its answer. True if that changed something.
    ///
    /// # Errors
    /// It ends, does not answer in time, or does not know the request; completes "failed to …".
    pub fn ask(&self, what: &str, request: &Request) -> Result<bool> {
        let start = Instant::now();
        let mut has_ended_meanwhile = false;
        let answer = self.asker.ask(request, || {
            has_ended_meanwhile = has_ended(self.pid);
            !has_ended_meanwhile && start.elapsed() < PATIENCE
        });
        let seconds = PATIENCE.as_secs();
        let why = match answer {
            Ok(Answer::Done) => return Ok(true),
            Ok(Answer::Already) => return Ok(false),
            Ok(Answer::Unknown) => {
                "its gpushim does not know this request; start it with this version".to_string()
            }
            Ok(Answer::Refused) => {
                "owners are not recorded there: it runs no Python 3.8 to 3.14, or was started without GPUSHIM_OWNERS=auto"
                    .to_string()
            }
            Err(_) if has_ended_meanwhile => "it ended before it answered".to_string(),
            Err(_) if is_stopped(self.pid) => format!(
                "it did not answer within {seconds} s, because it is stopped; continue it with `kill -CONT {}`",
                self.pid
            ),
            Err(Busy::Locked) => format!(
                "another `gpushim control` was waiting for it all of {seconds} s; try again"
            ),
            Err(Busy::Taken) => format!(
                "it took the request and did not say within {seconds} s that it is done; try again"
            ),
            Err(Busy::Silent) => format!(
                "it did not answer within {seconds} s; libgpushim.so must be preloaded, not loaded later, and the process \
                 must get processor time"
            ),
        };
        Err(self.error(what, &why))
    }

    /// Path of the process's trace.
    pub fn trace(&self) -> &Path {
        self.asker.path()
    }

    /// Error for an operation on the process.
    pub fn error(&self, what: &str, why: &str) -> Error {
        failed!("{what} process {}: {why}", self.pid)
    }
}

/// Reason for which no trace of a process could be found.
fn without_trace(pid: u32) -> String {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
    let Ok(maps) = maps else {
        return "you may not look at it".to_string();
    };
    let deleted = maps
        .lines()
        .any(|line| line.contains(" rw-s ") && line.ends_with(".trace (deleted)"));
    if deleted {
        return "its trace was deleted, and nothing else leads to it".to_string();
    }
    if maps.contains("libgpushim") {
        return "it has no trace yet, or records none (GPUSHIM_TRACE=off): the trace begins with the first use of CUDA \
                memory; try again then"
            .to_string();
    }
    "it was not started under gpushim; start it with `gpushim run PROGRAM`".to_string()
}

/// A line of `/proc/PID/status`.
fn status(pid: u32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start_matches(':').trim().to_string())
}

/// The ids of a process: in this namespace, and in the nested namespaces of its containers.
fn ids_of(pid: u32) -> Vec<u32> {
    let ids = status(pid, "NSpid").unwrap_or_default();
    let ids = ids.split_whitespace().filter_map(|id| id.parse().ok());
    ids.chain([pid]).collect()
}

/// True if a process has ended.
fn has_ended(pid: u32) -> bool {
    status(pid, "State").is_none_or(|state| state.starts_with(['Z', 'X']))
}

/// True if a process was stopped by a signal or a debugger.
fn is_stopped(pid: u32) -> bool {
    status(pid, "State").is_some_and(|state| state.starts_with(['T', 't']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pid: u32) -> String {
        Target::find(pid).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn processes_that_cannot_be_asked() {
        let own = std::process::id();
        assert!(ids_of(own).contains(&own));
        assert!(!has_ended(own) && !is_stopped(own));
        assert_eq!(
            said(own),
            format!(
                "control process {own}: it was not started under gpushim; start it with `gpushim run PROGRAM`"
            )
        );
        // No process has such an id: the kernel's limit is 2^22.
        assert!(said(1 << 23).contains("there is no such process"));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !has_ended(child.id()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(said(child.id()).contains("it has ended"));
        child.wait().unwrap();
    }
}
