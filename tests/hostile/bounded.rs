//! The command with bounds on memory and time.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time after which a command that uses no processor is said to hang.
const HANGS: Duration = Duration::from_secs(600);

/// Result of a bounded run.
pub struct Ran {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Ran {
    /// Returns both outputs as text.
    pub fn text(&self) -> String {
        let both = [&self.stdout[..], &self.stderr[..]].concat();
        String::from_utf8_lossy(&both).into_owned()
    }
}

/// Runs the command in a folder with a limit of address space, in MiB, and a limit of processor
/// time, which is the same on a busy machine. A whole number of seconds.
///
/// # Panics
/// If it takes longer, waits for [`HANGS`], or is ended by a signal: too little memory leads to an
/// abort.
pub fn gpushim(folder: &Path, args: &[&str], mib: u64, limit: Duration) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpushim"));
    command
        .args(args)
        .current_dir(folder)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GPUSHIM_") {
            command.env_remove(name);
        }
    }
    let limits = [
        (libc::RLIMIT_AS, mib << 20),
        (libc::RLIMIT_CPU, limit.as_secs()),
    ];
    let set_limits = move || {
        for (what, most) in limits {
            let limit = libc::rlimit {
                rlim_cur: most,
                rlim_max: most,
            };
            // SAFETY: the limit is a local, and the call may be made between fork and exec.
            if unsafe { libc::setrlimit(what, &raw const limit) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the function makes two system calls and takes no lock and no memory.
    unsafe { command.pre_exec(set_limits) };
    let begin = Instant::now();
    let mut child = command.spawn().expect("the command starts");
    let reader = |mut from: Box<dyn Read + Send>| {
        thread::spawn(move || {
            let mut all = Vec::new();
            from.read_to_end(&mut all).expect("its output is read");
            all
        })
    };
    let stdout = reader(Box::new(child.stdout.take().expect("piped")));
    let stderr = reader(Box::new(child.stderr.take().expect("piped")));
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            break status;
        }
        if begin.elapsed() > HANGS {
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
            panic!("{args:?} still runs after {HANGS:?}");
        }
        thread::sleep(Duration::from_millis(5));
    };
    let join = |thread: thread::JoinHandle<Vec<u8>>| thread.join().expect("read");
    let ran = Ran {
        code: status.code(),
        stdout: join(stdout),
        stderr: join(stderr),
    };
    assert!(ran.code.is_some(), "{args:?}: {status}: {}", ran.text());
    assert!(
        !ran.text().contains("panicked at"),
        "{args:?}: {}",
        ran.text()
    );
    ran
}

/// Subcommands that read a recording, with the words before its name.
pub const READERS: [&[&str]; 16] = [
    &["report"],
    &["growth"],
    &["peak"],
    &["oom"],
    &["phases"],
    &["replay", "--policy", "vmm"],
    &["fragmentation"],
    &["timeline"],
    &["export", "--to", "folded"],
    &["events", "--stacks"],
    &["html", "-o", "out.html"],
    &["metrics"],
    &["doctor"],
    &["top", "--once"],
    &["export", "--to", "json"],
    // The last one: it packs the file.
    &["pack"],
];
