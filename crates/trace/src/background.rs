//! Threads of ours in a program's process: they must not keep it alive.
//!
//! A process ends with its last thread. One whose `main` called `pthread_exit` would never end while a
//! thread of ours waits for work, and as that blocks all signals, nothing could terminate it.

use std::sync::Mutex;
use std::thread::{Builder, JoinHandle};
use std::{fs, io};

/// Starts a thread with a stack of this many bytes and all signals blocked but SIGBUS: the host's are for the host's
/// threads, and a truncated trace is a fault of the thread that touches it, which is handled there.
///
/// # Errors
/// There are no more threads to be had.
pub fn spawn(
    name: &str,
    stack: usize,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let builder = Builder::new().name(name.to_owned()).stack_size(stack);
    // SAFETY: both sets are ours, and zeros are valid for them; the new thread inherits the mask.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigdelset(&mut all, libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let thread = builder.spawn(run);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        thread
    }
}

/// The kernel ids of our threads that run.
static OURS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A thread of ours, for as long as it runs.
#[derive(Debug)]
pub struct Background {
    id: u32,
}

impl Background {
    /// The calling thread is one of ours until this is dropped.
    pub fn new() -> Background {
        // SAFETY: gettid has no preconditions.
        let id = unsafe { libc::gettid() }.unsigned_abs();
        if let Ok(mut ours) = OURS.lock() {
            ours.push(id);
        }
        Background { id }
    }
}

impl Default for Background {
    fn default() -> Background {
        Background::new()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Ok(mut ours) = OURS.lock() {
            ours.retain(|id| *id != self.id);
        }
    }
}

/// Whether no thread of the process is left but ours: its first one has ended, and all others.
///
/// For threads that must not be the last one, because the exit handlers run on that: the spool's, which has
/// a table of descriptors without the program's.
pub fn is_left_alone() -> bool {
    let Ok(ours) = OURS.lock() else { return false };
    all_ended_but(|id| ours.contains(&id))
}

/// Whether the calling thread is the last of the process. When it returns, the exit handlers run on it.
pub fn is_last() -> bool {
    // SAFETY: gettid has no preconditions.
    let own = unsafe { libc::gettid() }.unsigned_abs();
    all_ended_but(|id| id == own)
}

fn all_ended_but(kept: impl Fn(u32) -> bool) -> bool {
    // Cheap for nearly every process: the first thread lives.
    if !has_ended(std::process::id()) {
        return false;
    }
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return false;
    };
    let mut threads = threads
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    threads.all(|id: u32| kept(id) || has_ended(id))
}

/// Whether a thread of this process has ended, as far as that can be told.
fn has_ended(id: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/self/task/{id}/stat")) else {
        return false;
    };
    // Its name, in parentheses, may contain anything.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_a_first_thread_is_not_left_alone() {
        let _background = Background::new();
        assert!(!has_ended(std::process::id()));
        assert!(!is_left_alone() && !is_last());
    }
}
