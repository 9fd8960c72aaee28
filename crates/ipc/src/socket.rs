//! Sockets that are connected, and who is at their other end.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;

/// The longest wait for the exporter, which may be stopped or busy: to connect, and for each reply.
const PATIENCE: Duration = Duration::from_secs(10);

fn unconnected(more: SocketFlags) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | more;
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A socket that is connected to an address, with limits to each wait.
pub fn connect(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let socket = unconnected(SocketFlags::empty())?;
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    retry_on_intr(|| net::connect(&socket, address))?;
    Ok(socket)
}

/// A socket that is connected to an address. Neither this call nor any on the socket waits.
pub fn connect_at_once(address: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let socket = unconnected(SocketFlags::NONBLOCK)?;
    net::connect(&socket, address)?;
    Ok(socket)
}

/// Whether nobody listens at an address. Does not wait.
pub fn is_refused(address: &SocketAddrUnix) -> bool {
    connect_at_once(address).err() == Some(Errno::CONNREFUSED)
}

/// Whether the process at the other end is of this process's user, as the kernel noted when it connected or began to
/// listen. A user that this process's user namespace does not know is never this one's, but for that of unknown ones.
pub fn is_same_user(socket: impl AsFd) -> bool {
    // Not rustix's own: it has no value for a process of another process namespace, whose id is 0 here.
    let mut peer = libc::ucred {
        pid: 0,
        uid: libc::uid_t::MAX,
        gid: 0,
    };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure and its size are ours to write, and the socket is open.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut size,
        )
    };
    asked == 0 && peer.uid == geteuid().as_raw()
}
