//! Connected sockets, and checks of the process at the other end.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use gpushim_descriptors::KeptDescriptor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

/// Longest wait for the exporter, which may be stopped or busy: to connect, and for each reply.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes a socket that is not connected. It is closed when a new program replaces this one.
pub fn unconnected(more: SocketFlags) -> io::Result<KeptDescriptor> {
    let flags = SocketFlags::CLOEXEC | more;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    KeptDescriptor::keep(socket)
}

/// Connects to a peer process, with a limit to each wait.
pub fn connect(address: &SocketAddrUnix) -> io::Result<KeptDescriptor> {
    let socket = unconnected(SocketFlags::empty())?;
    let proven = socket.prove()?;
    set_socket_timeout(proven, Timeout::Send, Some(PATIENCE))?;
    set_socket_timeout(proven, Timeout::Recv, Some(PATIENCE))?;
    to_peer(socket, address)
}

/// Connects to a peer process. Neither this call nor any call on the socket waits.
pub fn connect_at_once(address: &SocketAddrUnix) -> io::Result<KeptDescriptor> {
    to_peer(unconnected(SocketFlags::NONBLOCK)?, address)
}

fn to_peer(socket: KeptDescriptor, address: &SocketAddrUnix) -> io::Result<KeptDescriptor> {
    let proven = socket.prove()?;
    retry_on_intr(|| net::connect(proven, address))?;
    match is_peer(&socket) {
        true => Ok(socket),
        false => Err(io::ErrorKind::ConnectionRefused.into()),
    }
}

/// Waits until one of the sockets has a packet or a connection, or the program has closed one.
/// False: time is up.
pub fn wait<'a>(sockets: impl Iterator<Item = &'a KeptDescriptor>, time: Duration) -> bool {
    let readable = |socket: &'a KeptDescriptor| {
        let proven = socket.prove()?;
        Ok(PollFd::from_borrowed_fd(proven, PollFlags::IN))
    };
    let Ok(mut waited) = sockets.map(readable).collect::<io::Result<Vec<_>>>() else {
        return true;
    };
    let ready = Timespec::try_from(time).map(|time| poll(&mut waited, Some(&time)));
    matches!(ready, Ok(Ok(1..) | Err(Errno::INTR)))
}

/// Sends a packet, without a wait for the other end.
pub fn send(socket: &KeptDescriptor, packet: &[u8]) -> io::Result<()> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    net::send(socket.prove()?, packet, flags)?;
    Ok(())
}

/// Receives the next packet, cut to the length of `into`, and returns its bytes. `None`: there is
/// none yet. Does not wait.
pub fn receive(socket: &KeptDescriptor, into: &mut [u8]) -> io::Result<Option<usize>> {
    match net::recv(socket.prove()?, into, RecvFlags::DONTWAIT) {
        Ok((read, _)) => Ok(Some(read)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// True if the other end connected or began to listen as a process of this process's user that has
/// not ended. (Its sockets may be open in a child.) All users unknown to this process's user
/// namespace count as one.
pub fn is_peer(socket: &KeptDescriptor) -> bool {
    let Ok(socket) = socket.prove() else {
        return false;
    };
    // Not rustix's own type: it has no value for a process of another process namespace, whose id
    // is 0 here.
    let mut peer = libc::ucred {
        pid: 0,
        uid: libc::uid_t::MAX,
        gid: 0,
    };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure and its size are ours to write, and the socket is open.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut size,
        )
    };
    asked == 0 && peer.uid == geteuid().as_raw() && !Pid::from_raw(peer.pid).is_some_and(has_ended)
}

/// True if a process has ended, even if its parent has not waited for it. False if that is not
/// known.
fn has_ended(process: Pid) -> bool {
    let process = match pidfd_open(process, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(error) => return error == Errno::SRCH,
    };
    let mut waited = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut waited, Some(&Timespec::default())) == Ok(1)
}
