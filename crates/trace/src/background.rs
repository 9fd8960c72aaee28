//! Threads of gpushim in a program's process: they must not keep it alive.
//!
//! A process ends with its last thread. If its `main` called `pthread_exit`, it would never end
//! while a thread of gpushim waits for work. Because that thread blocks all signals, nothing could
//! terminate the process.

use std::sync::Mutex;
use std::thread::{Builder, JoinHandle};
use std::{fs, io};

/// Starts a thread with a stack of this many bytes, and all signals blocked except SIGBUS. The
/// program's signals are for its own threads. SIGBUS is a fault of a thread that accesses a
/// truncated trace, and is handled in this thread.
///
/// # Errors
/// No more threads can be started.
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

/// Kernel ids of the running threads of gpushim.
static OURS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Registration of a thread of gpushim, while it runs.
#[derive(Debug)]
pub struct Background {
    id: u32,
}

impl Background {
    /// Registers the calling thread as one of gpushim until this is dropped.
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

/// True if only threads of gpushim are left in the process: its first thread has ended, and all
/// others.
///
/// For threads that must not be the last one, because the exit handlers run on the last one. The
/// spool's thread is such a thread: its table of descriptors lacks the program's.
pub fn is_left_alone() -> bool {
    let Ok(ours) = OURS.lock() else { return false };
    all_ended_but(|id| ours.contains(&id))
}

/// True if the calling thread is the last of the process. When it returns, the exit handlers run on
/// it.
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

/// True if a thread of this process has surely ended.
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
