//! Memory of the devices that other processes have taken.
//!
//! If `STANDIN_SHARED` names a file, each process notes its memory there. A line of the file has a
//! process, a device and the process's bytes there. Lines of processes that have ended do not
//! count.

use std::fs::{File, read_link};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Memory that all processes have taken. The file is locked until this is dropped.
pub struct Shared {
    file: File,
    /// Lines of process, device and bytes.
    lines: Vec<(u32, i32, u64)>,
}

impl Shared {
    /// Opens the file, creates it if necessary, and reads it. `None` if that fails.
    pub fn open(path: &Path) -> Option<Shared> {
        let mut options = File::options();
        let made = options.read(true).write(true).create(true).truncate(false);
        let mut file = made.open(path).ok()?;
        // SAFETY: the descriptor is open.
        let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
        (locked == 0).then_some(())?;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        let line = |line: &str| {
            let mut words = line.split(' ');
            let process = words.next()?.parse().ok()?;
            let device = words.next()?.parse().ok()?;
            Some((process, device, words.next()?.parse().ok()?))
        };
        let mut lines: Vec<_> = text.lines().filter_map(line).collect();
        // A process that has ended, but was not waited for yet, has no program any more.
        lines.retain(|(process, _, _)| read_link(format!("/proc/{process}/exe")).is_ok());
        Some(Shared { file, lines })
    }

    /// Returns the bytes of a device that other processes have taken.
    pub fn others(&self, device: i32) -> u64 {
        let own = std::process::id();
        let others = self.lines.iter();
        let others = others.filter(|(process, of, _)| *process != own && *of == device);
        others.map(|(_, _, bytes)| bytes).sum()
    }

    /// Notes the bytes of a device that this process has taken.
    pub fn note(mut self, device: i32, bytes: u64) {
        let own = std::process::id();
        let is_other = |(process, of, _): &(u32, i32, u64)| (*process, *of) != (own, device);
        self.lines.retain(is_other);
        self.lines.push((own, device, bytes));
        let lines = self.lines.iter();
        let text: String = lines
            .map(|(process, device, bytes)| format!("{process} {device} {bytes}\n"))
            .collect();
        let written = self.file.set_len(0).and_then(|()| self.file.rewind());
        let written = written.and_then(|()| self.file.write_all(text.as_bytes()));
        if let Err(error) = written {
            eprintln!("standin: failed to write the memory that processes share: {error}");
        }
    }
}
