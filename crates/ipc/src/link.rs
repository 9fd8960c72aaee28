//! The importer's end: a connection to the exporter.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::geteuid;

use crate::folder;
use crate::message::{self, BATCH, REPLY, Refused, Reply, Request};
use crate::token::Random;

/// The longest wait for the exporter, which may be stopped or busy: to connect, and for each reply.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to an exporter of the same user.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
}

impl Link {
    /// Connects to the exporter that listens under a name.
    ///
    /// # Errors
    /// There is none, it is another user's process, or it does not answer for 10 s.
    pub fn to(name: &Random) -> io::Result<Link> {
        let first = folder::in_network(name).and_then(|address| Link::at(&address));
        first.or_else(|error| {
            let folder = folder::of_user();
            match folder::is_private(&folder) {
                true => Link::under(&folder, name),
                false => Err(error),
            }
        })
    }

    /// Connects to the exporter whose socket is in a folder.
    pub(crate) fn under(folder: &Path, name: &Random) -> io::Result<Link> {
        Link::at(&SocketAddrUnix::new(folder::path(folder, name))?)
    }

    pub(crate) fn at(address: &SocketAddrUnix) -> io::Result<Link> {
        let socket = connect(address)?;
        match is_same_user(&socket) {
            true => Ok(Link { socket }),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Fetches pieces of a block.
    ///
    /// # Errors
    /// The connection ended, or there was no answer for 10 s; the exporter's refusal within the answer.
    pub fn fetch(&self, request: &Request) -> io::Result<Result<Reply<OwnedFd>, Refused>> {
        retry_on_intr(|| net::send(&self.socket, &request.encode(), SendFlags::NOSIGNAL))?;
        let mut bytes = [0; REPLY];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            let mut into = [IoSliceMut::new(&mut bytes)];
            net::recvmsg(
                &self.socket,
                &mut into,
                &mut control,
                RecvFlags::CMSG_CLOEXEC,
            )
        })?;
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                files.extend(some);
            }
        }
        let bytes = bytes.get(..received.bytes).unwrap_or_default();
        message::decode(bytes, files).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

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

/// Whether nobody listens at an address. Does not wait.
pub fn is_refused(address: &SocketAddrUnix) -> bool {
    let tried = unconnected(SocketFlags::NONBLOCK).and_then(|socket| net::connect(socket, address));
    tried == Err(Errno::CONNREFUSED)
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
