//! A program that is started beside the host and has no effect on it.
//!
//! A child of the host starts the program and ends at once. The end of this child sends no signal,
//! and the host's `wait` does not see it unless it asks for such children (`__WALL`). The program
//! then belongs to the first process of the machine or container. If that process is the host, it
//! gets a child that it did not start, as such processes do. The program has a session of its own,
//! and no descriptor of the host but stderr. No memory is copied to start it, as `fork` would.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// Data for the child and the program, and the program's id.
struct Start {
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    keeps_stderr: bool,
    stack: *mut c_void,
    id: AtomicI32,
}

/// Bytes of the stack of each of the two, used until it executes another program.
const STACK: usize = 16 << 10;

/// Memory for a stack, aligned as the processors require.
#[repr(align(64))]
struct Stack([MaybeUninit<u8>; STACK]);

impl Stack {
    const fn new() -> Stack {
        Stack([const { MaybeUninit::uninit() }; STACK])
    }

    /// Returns its end: stacks grow downwards.
    fn top(&mut self) -> *mut c_void {
        self.0.as_mut_ptr_range().end.cast()
    }
}

/// Flags of `clone`: the new process shares the memory, and the calling thread continues once it
/// executes a program or ends.
const MEANWHILE: c_int = libc::CLONE_VM | libc::CLONE_VFORK;

/// Starts a program with all signals blocked. Returns its id, or `None` if the system refuses
/// another process. A failure to execute the program is not seen.
pub fn start(
    program: &CStr,
    arguments: &[&CStr],
    environment: &[CString],
    keeps_stderr: bool,
) -> Option<libc::pid_t> {
    let null = [ptr::null()];
    let arguments = arguments.iter().map(|text| text.as_ptr());
    let arguments: Vec<*const c_char> = arguments.chain(null).collect();
    let environment = environment.iter().map(|text| text.as_ptr());
    let environment: Vec<*const c_char> = environment.chain(null).collect();
    let mut stacks = [const { Stack::new() }; 2];
    let [first, second] = &mut stacks;
    let mut start = Start {
        program: program.as_ptr(),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        keeps_stderr,
        stack: second.top(),
        id: AtomicI32::new(0),
    };
    // SAFETY: the sets are ours, and zeros are valid for them; the child runs on its own stack,
    // which has room for its one function, with data that outlive it, as this thread continues only
    // once it is gone; no handler of the host can run in it, as all signals are blocked.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let child = libc::clone(in_child, first.top(), MEANWHILE, (&raw mut start).cast());
        if child > 0 {
            libc::waitpid(child, ptr::null_mut(), libc::__WCLONE);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
    }
    Some(start.id.into_inner()).filter(|id| *id > 0)
}

/// True if a program started by [`start`] has ended. If it became a child of this process, it is
/// also reaped.
pub fn has_ended(program: libc::pid_t) -> bool {
    // Its id may by now be the id of a child of the host, and only the host may wait for that
    // child.
    // SAFETY: system calls with plain numbers; no status is asked for, and no signal is sent.
    unsafe {
        (adopts() && libc::waitpid(program, ptr::null_mut(), libc::WNOHANG) == program)
            || libc::kill(program, 0) != 0
    }
}

/// True if processes without a parent become children of this one.
fn adopts() -> bool {
    let mut is_reaper: c_int = 0;
    // SAFETY: system calls; the number is local, and only it is written.
    unsafe {
        libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut is_reaper);
        is_reaper != 0 || libc::getpid() == 1
    }
}

/// Runs the child, in the host's memory. It makes system calls only, by no function that could be
/// the host's own.
extern "C" fn in_child(start: *mut c_void) -> c_int {
    // SAFETY: `start` is a local of the parent, which waits meanwhile; all else are system calls on
    // descriptors of this process alone, and a child like this one on a stack of its own.
    unsafe {
        let place = start;
        let start = &*start.cast::<Start>();
        libc::syscall(libc::SYS_setsid);
        let path = c"/dev/null".as_ptr();
        let null = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDWR);
        for descriptor in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
            let is_kept = descriptor == libc::STDERR_FILENO && start.keeps_stderr;
            if null >= 0 && !is_kept && null != descriptor.into() {
                libc::syscall(libc::SYS_dup3, null, descriptor, 0);
            }
        }
        if libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) != 0 {
            // Before Linux 5.9: the descriptors that a program usually has.
            (3..1024).for_each(|descriptor| {
                libc::syscall(libc::SYS_close, descriptor);
            });
        }
        let id = libc::clone(in_program, start.stack, MEANWHILE | libc::SIGCHLD, place);
        start.id.store(id, Ordering::Relaxed);
        libc::syscall(libc::SYS_exit_group, 0);
    }
    0
}

extern "C" fn in_program(start: *mut c_void) -> c_int {
    // SAFETY: `start` is a local of the host, and the two processes that wait for this call keep
    // it.
    unsafe {
        let start = &*start.cast::<Start>();
        libc::syscall(
            libc::SYS_execve,
            start.program,
            start.arguments,
            start.environment,
        );
        libc::syscall(libc::SYS_exit_group, 127);
    }
    127
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// Runs a script to its end. Returns the text that it wrote into the file of its first
    /// argument.
    fn said(script: &str, environment: &[CString]) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("said");
        let path = CString::new(file.to_str().expect("text")).expect("no zero");
        let script = CString::new(script).expect("no zero");
        let arguments = [c"sh", c"-c", &script, c"sh", &path];
        let child = start(c"/bin/sh", &arguments, environment, true).expect("a child");
        // SAFETY: no status is asked for. Who waits for any child sees none.
        let found = unsafe { libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG) };
        let error = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((found, error), (-1, Some(libc::ECHILD)));
        let begin = Instant::now();
        while !has_ended(child) {
            assert!(begin.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
        std::fs::read_to_string(file).unwrap_or_default()
    }

    #[test]
    fn it_runs_with_its_own_arguments_environment_and_descriptors() {
        let kept = std::fs::File::open("/dev/null").expect("a descriptor");
        // SAFETY: a copy of an open descriptor that the next program would inherit.
        let copy = unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&kept), 77) };
        assert_eq!(copy, 77);
        let script = "sleep 0.1; read line; echo $A:$HOME:$line; ls /proc/$$/fd | grep -c 77";
        let script = format!("{{ {script}; }} > $1");
        assert_eq!(said(&script, &[c"A=b".to_owned()]), "b::\n0\n");
        // SAFETY: it was made above.
        unsafe { libc::close(copy) };
    }

    #[test]
    fn what_cannot_be_executed_ends() {
        let child = start(c"/no/such/file", &[c"x"], &[], false).expect("a child");
        let begin = Instant::now();
        while !has_ended(child) {
            assert!(begin.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
