//! A child process that this process stands for: it forwards signals to the child, and stops,
//! continues and ends as the child does.
//!
//! The child stays in this process group. It is therefore in the foreground of the terminal if this
//! process is. Signals of the terminal reach both.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

/// Signals that are passed on to the child, besides the real-time ones.
const FORWARDED: [libc::c_int; 16] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGWINCH,
    libc::SIGURG,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGXCPU,
];

/// End of the child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Code(u8),
    /// The child was killed by a signal.
    Signal {
        /// The number of the signal.
        number: libc::c_int,
        /// True if the system wrote a core file.
        has_core: bool,
    },
}

/// Names of the signals that end programs.
const NAMES: [(libc::c_int, &str); 17] = [
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGKILL, "SIGKILL"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGPIPE, "SIGPIPE"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGXFSZ, "SIGXFSZ"),
];

impl std::fmt::Display for End {
    /// `exit code 1`, `signal 11 (SIGSEGV), core dumped`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Code(code) => write!(f, "exit code {code}"),
            End::Signal { number, has_core } => {
                write!(f, "signal {number}")?;
                if let Some((_, name)) = NAMES.iter().find(|(one, _)| one == number) {
                    write!(f, " ({name})")?;
                }
                f.write_str(if *has_core { ", core dumped" } else { "" })
            }
        }
    }
}

/// Puts the command in the place of this process; returns only if it cannot be started.
pub fn become_it(command: &mut Command) -> io::Error {
    let before = match block(&signal_set(std::iter::empty())) {
        Ok(before) => before,
        Err(error) => return error,
    };
    // SAFETY: the closure makes one async-signal-safe system call and touches no memory but its
    // own.
    unsafe { command.pre_exec(move || set_mask(&before)) };
    command.exec()
}

/// Runs a command to its end: its process id, and how it ended.
///
/// # Errors
/// It cannot be started, or the system refuses to wait for it.
pub fn run(command: &mut Command) -> io::Result<(u32, End)> {
    // Blocked, the signals queue up for sigwaitinfo, and none is lost between spawn and wait.
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    let passed = FORWARDED.into_iter().chain(real_time);
    let waited = signal_set(passed.chain([libc::SIGCHLD]));
    let before = block(&waited)?;
    // A program may start this one with SIGCHLD ignored. The end of the child would then be lost.
    // SAFETY: no handler of this process is replaced; it has none.
    let of_children = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let parent = std::process::id() as libc::pid_t;
    let in_child = move || {
        // Killed, this process takes the child with it, as if they were one.
        // SAFETY: system calls that are async-signal-safe, with plain numbers.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != parent {
                libc::_exit(128 + libc::SIGKILL);
            }
            if of_children == libc::SIG_IGN {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            }
        }
        set_mask(&before)
    };
    // SAFETY: the closure makes async-signal-safe system calls only and touches no memory but its
    // own.
    unsafe { command.pre_exec(in_child) };
    let ended = command.spawn().and_then(|child| {
        let status = wait(child.id() as libc::pid_t, &waited)?;
        Ok((child.id(), status))
    });
    set_mask(&before)?;
    let (pid, status) = ended?;
    let end = match (status.code(), status.signal()) {
        (Some(code), _) => End::Code(u8::try_from(code).unwrap_or(255)),
        (None, signal) => End::Signal {
            number: signal.unwrap_or(libc::SIGKILL),
            has_core: status.core_dumped(),
        },
    };
    Ok((pid, end))
}

/// Ends this process by a signal, without a core file of its own.
///
/// Returns an exit code if the process survives, as the first process of a container does.
pub fn end_by(signal: libc::c_int) -> u8 {
    let this = signal_set([signal].into_iter());
    // SAFETY: system calls with plain numbers and an initialised set; no other thread relies on
    // these settings.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::signal(signal, libc::SIG_DFL);
        libc::kill(libc::getpid(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &this, std::ptr::null_mut());
    }
    u8::try_from(128 + signal).unwrap_or(255)
}

fn wait(child: libc::pid_t, signals: &libc::sigset_t) -> io::Result<ExitStatus> {
    loop {
        while let Some(status) = changed(child)? {
            match status.stopped_signal() {
                Some(signal) => stop_too(child, signal),
                None => return Ok(status),
            }
        }
        let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: both pointers are to local, properly sized structures.
        let signal = unsafe { libc::sigwaitinfo(signals, info.as_mut_ptr()) };
        if signal < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        // SAFETY: sigwaitinfo succeeded and filled it.
        let by_kernel = unsafe { info.assume_init() }.si_code > 0;
        // The terminal signals the whole foreground group, and so the child as well. The hangup of
        // the terminal is signalled only to the first process of a session.
        // SAFETY: these calls only ask.
        let leads = unsafe { libc::getsid(0) == libc::getpid() };
        let both_have_it = by_kernel && !(signal == libc::SIGHUP && leads);
        if signal != libc::SIGCHLD && !both_have_it {
            send(child, signal);
        }
    }
}

/// The end or the stop of the child; `None` if there is nothing new.
fn changed(child: libc::pid_t) -> io::Result<Option<ExitStatus>> {
    let mut status = 0;
    // SAFETY: the status is a local number; the child is ours.
    let found = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG | libc::WUNTRACED) };
    match found {
        0 => Ok(None),
        _ if found == child => Ok(Some(ExitStatus::from_raw(status))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Stops this process as the child was stopped, and when it goes on lets the child go on.
fn stop_too(child: libc::pid_t, signal: libc::c_int) {
    let this = signal_set([signal].into_iter());
    let went_on = signal_set([libc::SIGCONT].into_iter());
    // SAFETY: system calls with plain numbers and initialised sets. The signal that stopped the
    // child may be pending here as well: it is the same stop.
    let is_continued = unsafe {
        libc::kill(libc::getpid(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &this, std::ptr::null_mut());
        // Here it is stopped, unless there is nothing that could let it go on.
        libc::pthread_sigmask(libc::SIG_BLOCK, &this, std::ptr::null_mut());
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        libc::sigtimedwait(&went_on, std::ptr::null_mut(), &now) == libc::SIGCONT
    };
    // A shell continues the whole group; a signal to this process alone is meant for the child as
    // well.
    if is_continued && is_stopped(child) {
        send(child, libc::SIGCONT);
    }
}

fn is_stopped(child: libc::pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|rest| rest.starts_with('T'))
}

fn send(child: libc::pid_t, signal: libc::c_int) {
    // SAFETY: the child has not been waited for, so its id is still its own.
    unsafe { libc::kill(child, signal) };
}

fn signal_set(signals: impl Iterator<Item = libc::c_int>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set, sigaddset then changes it in place.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        signals.for_each(|signal| {
            libc::sigaddset(set.as_mut_ptr(), signal);
        });
        set.assume_init()
    }
}

/// Blocks signals and returns the mask from before.
fn block(signals: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = signal_set(std::iter::empty());
    // SAFETY: both sets are initialised and local to the callers.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, signals, &mut before) } {
        0 => Ok(before),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

fn set_mask(mask: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set is initialised; no old mask is asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
