//! Identity of a process, and the proof that it has ended.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Bits of a process id (`PID_MAX_LIMIT` of Linux is 2^22), above those of the start time.
const START_BITS: u32 = 42;

/// A process: its id, which may be used again, and the ticks of its start since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    start: u64,
    /// Inode of the namespace of the id.
    namespace: u64,
}

impl Process {
    /// Returns the calling process.
    ///
    /// # Errors
    /// `/proc` does not describe it.
    pub fn own() -> io::Result<Process> {
        let pid = std::process::id();
        let unknown = || io::Error::other("/proc has no start time of this process");
        Ok(Process {
            pid,
            start: stat(pid).ok_or_else(unknown)?.start,
            namespace: own_namespace()?,
        })
    }

    /// Returns the process of a slot, by its two words. `None`: the slot is free.
    pub fn of_words(owner: u64, namespace: u64) -> Option<Process> {
        (owner != 0).then_some(Process {
            pid: (owner >> START_BITS) as u32,
            start: owner & ((1 << START_BITS) - 1),
            namespace,
        })
    }

    /// Returns the words of a slot: owner and namespace.
    pub fn words(self) -> (u64, u64) {
        let start = self.start & ((1 << START_BITS) - 1);
        (u64::from(self.pid) << START_BITS | start, self.namespace)
    }

    /// True if the process has ended, false if it runs. `None`: its id belongs to another
    /// namespace.
    pub fn has_ended(self) -> Option<bool> {
        (own_namespace().ok()? == self.namespace).then(|| !self.runs())
    }

    fn runs(self) -> bool {
        // SAFETY: signal 0 is not sent; the call only looks for the process.
        let found = unsafe { libc::kill(self.pid as libc::pid_t, 0) } == 0
            || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH);
        // A process of another user may be hidden in /proc.
        found && stat(self.pid).is_none_or(|now| now.start == self.start && !now.is_dead)
    }
}

fn own_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

struct Stat {
    start: u64,
    /// True after the end of the last thread: the kernel has closed its files.
    is_dead: bool,
}

/// Reads the line of proc_pid_stat(5). `None`: it cannot be read.
fn stat(pid: u32) -> Option<Stat> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = line.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    // The first thread of a process may end before the others.
    let has_threads = || match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(threads) => threads.count() > 1,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    Some(Stat {
        start: fields.nth(18)?.parse().ok()?,
        is_dead: matches!(state, "Z" | "X" | "x") && !has_threads(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_has_ended_before_it_is_waited_for() {
        let own = Process::own().expect("this process");
        assert_eq!(own.has_ended(), Some(false));
        let (owner, namespace) = own.words();
        assert_eq!(Process::of_words(owner, namespace), Some(own));
        assert_eq!(Process::of_words(0, namespace), None);
        let elsewhere = Process {
            namespace: 1,
            ..own
        };
        assert_eq!(elsewhere.has_ended(), None);
        let reused = Process {
            start: own.start + 1,
            ..own
        };
        assert_eq!(
            reused.has_ended(),
            Some(true),
            "another process with the id"
        );

        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let start = stat(child.id()).expect("a line").start;
        let process = Process {
            pid: child.id(),
            start,
            ..own
        };
        assert_eq!(process.has_ended(), Some(false));
        child.kill().expect("killed");
        while process.has_ended() == Some(false) {
            std::thread::yield_now();
        }
        child.wait().expect("waited");
        assert_eq!(process.has_ended(), Some(true));
    }
}
