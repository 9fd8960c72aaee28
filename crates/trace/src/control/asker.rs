//! The asking side: the trace of a running process, opened for writing, with a lock on it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};

use super::{Answer, Panel, Request};
use crate::Error;
use crate::guard::Guard;
use crate::layout::{self, control, facts};
use crate::reader::Trace;

/// Interval between two looks for an answer.
const LOOK: Duration = Duration::from_millis(2);

/// Action named by the [`Error`]s of this module.
const CONTROL: &str = "control the process by its trace";

/// Reason for a missing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Another process asks, and holds the lock.
    Locked,
    /// The writer took the request, and did not answer.
    Taken,
    /// The writer did not take the request, which was withdrawn.
    Silent,
}

/// A trace through which its process is asked for something.
#[derive(Debug)]
pub struct Asker {
    // Before `map`, so that it is dropped first.
    guard: Guard,
    map: MmapRaw,
    /// First word of the part in the mapping.
    first: usize,
    file: File,
    owner: u32,
    process: Option<u32>,
    path: PathBuf,
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.guard.release();
    }
}

impl Asker {
    /// Opens the trace at a path, which must be a regular file and no link.
    ///
    /// # Errors
    /// It cannot be written by this user, is no trace, or is one of a gpushim that takes no
    /// requests.
    pub fn open(path: &Path) -> Result<Asker, Error> {
        let failed = |why: &str| Error::new(CONTROL, path, why);
        let system = |error| Error::io(CONTROL, path, "", error);
        let file = gpushim_descriptors::open(path).map_err(system)?;
        let meta = file.metadata().map_err(system)?;
        if !meta.is_file() {
            return Err(failed("it is not a regular file"));
        }
        let head = head(&file, meta.len()).map_err(system)?;
        let trace = Trace::from_bytes(path, &head)?;
        let offset = trace.control_at().ok_or_else(|| {
            failed("the gpushim that writes it is older and takes no requests; the process can be controlled by this version once it is started with it")
        })?;
        let fits = offset
            .checked_add(control::BYTES as u64)
            .is_some_and(|end| end <= meta.len());
        if !fits {
            return Err(failed("it is cut off, and its process no longer writes it"));
        }
        let page = offset / control::BYTES as u64 * control::BYTES as u64;
        let bytes = (meta.len() - page).min(2 * control::BYTES as u64) as usize;
        let map = MmapOptions::new()
            .offset(page)
            .len(bytes)
            .map_raw(&file)
            .map_err(system)?;
        Ok(Asker {
            guard: Guard::of_reader(map.as_ptr() as usize, bytes),
            map,
            first: (offset - page) as usize / 8,
            file,
            owner: meta.uid(),
            process: trace.fact("pid").and_then(|pid| pid.parse().ok()),
            path: path.to_path_buf(),
        })
    }

    /// The user whose file it is.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Id of the process that writes the trace, from its facts.
    pub fn process(&self) -> Option<u32> {
        self.process
    }

    /// Path by which the trace was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn panel(&self) -> Panel<'_> {
        let words = self.map.len() / 8;
        // SAFETY: the mapping is page-aligned, holds this many words, lives as long as `self`, and
        // is accessed atomically only.
        let words =
            unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU64>(), words) };
        let part = words.get(self.first..).unwrap_or_default();
        Panel::new(part.get(..control::BYTES / 8).unwrap_or_default())
    }

    /// Asks, and waits for the answer while `goes_on` returns true. A request not taken by then is
    /// withdrawn.
    ///
    /// # Errors
    /// The reason why there is no answer.
    pub fn ask(
        &self,
        request: &Request,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<Answer, Busy> {
        while !self.lock() {
            if !goes_on() {
                return Err(Busy::Locked);
            }
            std::thread::sleep(LOOK);
        }
        let answer = self.ask_alone(request, &mut goes_on);
        self.unlock();
        answer
    }

    fn ask_alone(
        &self,
        request: &Request,
        goes_on: &mut impl FnMut() -> bool,
    ) -> Result<Answer, Busy> {
        let panel = self.panel();
        let turn = loop {
            if let Some(turn) = panel.ask(request) {
                break turn;
            }
            if !goes_on() {
                return Err(Busy::Taken);
            }
            std::thread::sleep(LOOK);
        };
        loop {
            if let Some(answer) = panel.answer_to(turn) {
                return Ok(answer);
            }
            if !goes_on() {
                break;
            }
            std::thread::sleep(LOOK);
        }
        if panel.take_back(turn) {
            return Err(Busy::Silent);
        }
        // It was taken at the last moment.
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            if let Some(answer) = panel.answer_to(turn) {
                return Ok(answer);
            }
            std::thread::sleep(LOOK);
        }
        Err(Busy::Taken)
    }

    /// True if this process has taken the lock. The lock ends with the process, even if that is
    /// killed.
    pub(super) fn lock(&self) -> bool {
        // SAFETY: the descriptor is open for as long as `self` lives.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
    }

    fn unlock(&self) {
        // SAFETY: as above. If it fails, the lock ends with the descriptor.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// Returns the beginning of a trace, up to the end of its facts.
pub(crate) fn head(file: &File, length: u64) -> io::Result<Vec<u8>> {
    let most = (layout::HEADER_BYTES + facts::BYTES) as u64;
    let mut head = vec![0; length.min(most) as usize];
    file.read_exact_at(&mut head, 0)?;
    Ok(head)
}
