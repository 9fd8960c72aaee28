//! Descriptors of a daemon: the program closes all descriptors, and opens its own under their
//! numbers.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Mutex;
use std::time::Duration;

use crate::world::World;

/// Sockets to listen on, and pairs: each more than another library in the process has.
const SOCKETS: usize = 8;
/// Connections to each socket.
const CONNECTIONS: usize = 3;
/// Time within which a polling thread looks at its descriptors again.
const LOOK: Duration = Duration::from_millis(1200);

/// Sockets that the program opened.
struct Own {
    listeners: Vec<(UnixListener, SocketAddr)>,
    pairs: Vec<(UnixStream, UnixStream)>,
}

static OWN: Mutex<Option<Own>> = Mutex::new(None);

impl Own {
    fn open() -> std::io::Result<Own> {
        let listener = |number: usize| {
            let name = format!("differential-{}-{number}", std::process::id());
            let address = SocketAddr::from_abstract_name(name)?;
            let listener = UnixListener::bind_addr(&address)?;
            listener.set_nonblocking(true)?;
            Ok((listener, address))
        };
        let listeners: std::io::Result<_> = (0..SOCKETS).map(listener).collect();
        let pairs: std::io::Result<_> = (0..SOCKETS).map(|_| UnixStream::pair()).collect();
        Ok(Own {
            listeners: listeners?,
            pairs: pairs?,
        })
    }

    /// Connections that another thread took.
    fn lost(&self, patience: Duration) -> u64 {
        let connect = |(_, address): &(UnixListener, SocketAddr)| {
            let open = (0..CONNECTIONS).filter_map(|_| UnixStream::connect_addr(address).ok());
            open.collect::<Vec<_>>()
        };
        let clients: Vec<_> = self.listeners.iter().map(connect).collect();
        std::thread::sleep(patience);
        let accepted = |(listener, _): &(UnixListener, SocketAddr)| {
            (0..CONNECTIONS)
                .filter(|_| listener.accept().is_ok())
                .count()
        };
        let accepted: usize = self.listeners.iter().map(accepted).sum();
        drop(clients);
        (SOCKETS * CONNECTIONS - accepted) as u64
    }

    /// Pairs over which nothing gets through.
    fn broken(&self) -> u64 {
        let is_broken = |(one, other): &&(UnixStream, UnixStream)| {
            let (mut one, mut other, mut byte) = (one, other, [0]);
            !(one.write_all(&[5]).is_ok() && other.read_exact(&mut byte).is_ok() && byte == [5])
        };
        self.pairs.iter().filter(is_broken).count() as u64
    }

    fn numbers(&self) -> Vec<RawFd> {
        let listeners = self
            .listeners
            .iter()
            .map(|(listener, _)| listener.as_raw_fd());
        let pairs = self
            .pairs
            .iter()
            .flat_map(|(one, other)| [one.as_raw_fd(), other.as_raw_fd()]);
        listeners.chain(pairs).collect()
    }
}

/// Tells whether the program has closed the descriptors of others.
pub fn are_closed() -> bool {
    OWN.lock().is_ok_and(|own| own.is_some())
}

/// Closes all descriptors, except the three standard ones and the stand-in's device memory.
fn close_all() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let is_memory = |path: std::path::PathBuf| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target.to_string_lossy().starts_with("/memfd:standin")
    };
    let numbers: HashSet<RawFd> = entries
        .flatten()
        .filter(|entry| !is_memory(entry.path()))
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        // SAFETY: no object of ours owns a descriptor now: the program does what closefrom(3) does.
        unsafe { libc::close(number) };
    }
}

/// Counts the descriptors that a forked child does not have.
fn gone_in_child(numbers: &[RawFd]) -> u64 {
    // SAFETY: the child calls only functions that are safe after a fork, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let gone = numbers
                .iter()
                .filter(|number| libc::fcntl(**number, libc::F_GETFD) < 0);
            libc::_exit(gone.count() as i32);
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        libc::WEXITSTATUS(status) as u64
    }
}

/// Closes all descriptors the first time, and opens sockets. Seen each time: connections lost,
/// pairs broken, descriptors that a child does not have.
pub fn close(world: &mut World) -> bool {
    let Ok(mut own) = OWN.lock() else {
        return false;
    };
    let mut patience = Duration::from_millis(1);
    if own.is_none() {
        close_all();
        *own = Own::open().ok();
        patience = LOOK;
    }
    let Some(own) = own.as_ref() else {
        return false;
    };
    let numbers = own.numbers();
    world
        .seen
        .extend([own.lost(patience), own.broken(), gone_in_child(&numbers)]);
    true
}

/// Forks a child that waits for the end of the process.
///
/// It reports on standard output if the end breaks sockets that it shares.
pub fn watch_end(seed: u64) {
    let Ok(own) = OWN.lock() else { return };
    let (Some(own), Ok((mut here, there))) = (own.as_ref(), UnixStream::pair()) else {
        return;
    };
    // SAFETY: no other thread of ours runs now, and the child does nothing with the driver.
    if unsafe { libc::fork() } != 0 {
        // The child's copy of the other end stays open. The parent's is closed with the process.
        std::mem::forget(there);
        return;
    }
    drop(there);
    // Until the parent is gone.
    let _ = here.read(&mut [0]);
    if own.broken() > 0 {
        println!(
            "difference {seed}\nthe end of the process has broken a socket that a child shares"
        );
    }
    // SAFETY: the child ends without the parent's handlers.
    unsafe { libc::_exit(0) };
}
