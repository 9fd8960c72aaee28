//! A child process whose signals and exit code are ours.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

/// Signals that are passed on to the child.
const FORWARDED: [libc::c_int; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGCONT,
];

/// Runs a command to its end and returns its exit code, 128 + N if signal N ended it.
pub fn run(command: &mut Command) -> io::Result<u8> {
    // Blocked, the signals queue up for sigwaitinfo, and none is lost between spawn and wait.
    let waited = signal_set(FORWARDED.into_iter().chain([libc::SIGCHLD]));
    let before = block(&waited)?;
    // SAFETY: the closure makes one async-signal-safe system call and touches no memory but its own.
    unsafe { command.pre_exec(move || set_mask(&before)) };
    let status = command
        .spawn()
        .and_then(|mut child| wait(&mut child, &waited));
    set_mask(&before)?;
    let status = status?;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(255);
    Ok(u8::try_from(code).unwrap_or(255))
}

fn wait(child: &mut Child, signals: &libc::sigset_t) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
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
        let from_terminal = unsafe { info.assume_init() }.si_code > 0;
        // The terminal signals the whole foreground group, and so the child as well.
        if signal != libc::SIGCHLD && !from_terminal {
            // SAFETY: the child has not been waited for, so its id is still its own.
            unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        }
    }
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
