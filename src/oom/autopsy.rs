//! The text about a request that ran out of memory, while its process still runs or has just ended.
//! It is written to the process's stderr and beside its trace.
//!
//! The library starts this command in a process of its own, with all signals blocked. Nothing waits
//! for it. If it fails, it writes nothing: the output belongs to the program.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use super::brief::{self, Brief};
use super::find::Shortages;
use crate::cli::outcome::Outcome;
use crate::ledger::{Focus, Visitor};
use crate::output::units::moment;
use crate::recording::{self, Recording, plain};

/// The suffix of the file with the texts, after the name of the trace without `.gz`.
const SUFFIX: &str = ".autopsy";
/// Time before the trace is read again: meanwhile frameworks release their cache and ask the driver
/// again.
const SETTLES: Duration = Duration::from_millis(150);
/// Seconds after which this process ends in any case.
const PATIENCE: u32 = 20;
/// Bytes of earlier texts that are read: a process gets few of them.
const EARLIER: u64 = 1 << 20;

/// Explains the last request of a trace that failed; [`Outcome::Found`] if a text was written.
pub(super) fn main(trace: &Path) -> Outcome {
    let mask = std::ptr::null_mut();
    // SAFETY: system calls with plain numbers and a local signal set, for which zeros are valid.
    unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        let none: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, mask);
        libc::alarm(PATIENCE);
    }
    match say(trace) {
        Some(()) => Outcome::Found,
        None => Outcome::Fine,
    }
}

fn say(trace: &Path) -> Option<()> {
    let recording = settled(trace)?;
    let brief = Brief::of(&*recording, Focus::of(&*recording, None), None)?;
    // Processes write one after the other; a text that was written before is not repeated.
    let mut file = texts_of(trace).ok()?;
    let mut earlier = String::new();
    (&file).take(EARLIER).read_to_string(&mut earlier).ok()?;
    let end = format!(": {}", brief.key);
    if earlier.lines().any(|line| line.ends_with(&end)) {
        return None;
    }
    let text = brief.text();
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    let head = format!("{}{end}", moment(now));
    // The program may have closed its stderr, and the disk may be full: one of the two may still
    // work.
    let kept = file.write_all(format!("{head}\n{text}\n").as_bytes());
    let said = io::stderr().write_all(text.as_bytes());
    (kept.is_ok() || said.is_ok()).then_some(())
}

/// Opens the recording, once it shows if a refused request succeeded later.
fn settled(trace: &Path) -> Option<Box<dyn Recording>> {
    let newest = recording::open_ring(trace).ok()?;
    let mut find = Shortages::last(None);
    (newest.events()).for_each(|record| find.event(&record));
    if find.found.last().is_some_and(|one| !one.by_framework) {
        sleep(SETTLES);
    }
    brief::open(trace).ok()
}

/// Opens the file beside a trace and locks it: the next process waits until this one has ended.
fn texts_of(trace: &Path) -> io::Result<File> {
    let mut name = OsString::from(plain(trace));
    name.push(SUFFIX);
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(PathBuf::from(name))?;
    let meta = file.metadata()?;
    // SAFETY: it takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    // In a shared folder, another user may have created the file.
    if !meta.is_file() || meta.uid() != user {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    // SAFETY: the descriptor is open.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}
