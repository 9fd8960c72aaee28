//! A command on a terminal of its own.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// A process in the foreground of a terminal, whose session it leads.
pub struct OnTerminal {
    pub child: Child,
    screen: File,
    seen: String,
}

/// Starts a command on a terminal of this many columns.
pub fn start(command: &mut Command, columns: u16) -> OnTerminal {
    let (mut ours, mut its) = (0, 0);
    let size = libc::winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the numbers and the size are local; no name and no settings are asked for.
    let opened = unsafe {
        libc::openpty(
            &mut ours,
            &mut its,
            std::ptr::null_mut(),
            std::ptr::null(),
            &size,
        )
    };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: openpty gave two new descriptors, which nothing else owns.
    let (ours, its) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(its)) };
    let terminal = its.as_raw_fd();
    // SAFETY: the descriptor is open.
    unsafe { libc::fcntl(ours.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: the closure makes async-signal-safe system calls only.
    unsafe {
        command.pre_exec(move || {
            libc::setsid();
            libc::ioctl(terminal, libc::TIOCSCTTY, 0);
            Ok(())
        });
    }
    command
        .env("TERM", "xterm-256color")
        .stdin(its.try_clone().unwrap())
        .stdout(its.try_clone().unwrap())
        .stderr(its);
    let child = command.spawn().unwrap();
    // The command object keeps its streams open. Without this the end of the child would not be
    // seen here.
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    OnTerminal {
        child,
        screen: File::from(ours),
        seen: String::new(),
    }
}

impl OnTerminal {
    /// Waits until this is on the screen.
    pub fn wait_for(&mut self, text: &str) {
        let begin = Instant::now();
        while !self.seen.contains(text) {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "no {text:?} in {:?}",
                self.seen
            );
            assert!(self.read(), "no {text:?} in {:?}", self.seen);
        }
    }

    /// Types keys into the terminal.
    pub fn press(&mut self, keys: &str) {
        std::io::Write::write_all(&mut self.screen, keys.as_bytes()).unwrap();
    }

    /// All that it showed, with line feeds alone, and how it ended.
    pub fn end(mut self) -> (String, ExitStatus) {
        while self.read() {}
        let status = self.child.wait().unwrap();
        (self.seen.replace("\r\n", "\n"), status)
    }

    /// Reads the available output. False at the end: a terminal that no process has open gives an
    /// error.
    fn read(&mut self) -> bool {
        let mut part = [0; 4096];
        match self.screen.read(&mut part) {
            Ok(read) if read > 0 => {
                self.seen.push_str(&String::from_utf8_lossy(&part[..read]));
                true
            }
            _ => false,
        }
    }
}
