//! The importer's end: a connection to the exporter.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use gpushim_descriptors::KeptDescriptor;
use rustix::io::retry_on_intr;
use rustix::net::{self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix};

use crate::folder;
use crate::message::{self, Ask, BATCH, REPLY, Refused, Reply, Request};
use crate::socket;
use crate::token::Random;

/// A connection to an exporter of the same user.
#[derive(Debug)]
pub struct Link {
    socket: KeptDescriptor,
}

impl Link {
    /// Connects to the exporter that listens under a name.
    ///
    /// # Errors
    /// There is none, it has ended, it is another user's process, or it does not answer for 10 s.
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
        let socket = socket::connect(address)?;
        Ok(Link { socket })
    }

    /// Fetches pieces of a block.
    ///
    /// # Errors
    /// The connection ended, or there was no answer for 10 s; the exporter's refusal within the answer.
    pub fn fetch(&self, request: &Request) -> io::Result<Result<Reply<OwnedFd>, Refused>> {
        let ask = Ask::Pieces(*request).encode();
        socket::send(&self.socket, &ask)?;
        let mut bytes = [0; REPLY];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let waiting = self.socket.prove()?;
        let received = retry_on_intr(|| {
            let mut into = [IoSliceMut::new(&mut bytes)];
            net::recvmsg(waiting, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)
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
