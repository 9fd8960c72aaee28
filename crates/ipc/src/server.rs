//! The answering end. One thread serves all other processes, and waits for none of them.

use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpushim_descriptors::KeptDescriptor;
use rustix::io::Errno;
use rustix::net::{
    self, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
};

use crate::folder;
use crate::message::{self, Ask, BATCH, Refused, Reply, Request, Room};
use crate::socket::{self, is_peer};
use crate::token::{self, Random};

/// Most processes that are served at a time. Others wait in the queue of the socket.
const MOST: usize = 64;
/// Most processes that wait in the queue.
const QUEUE: i32 = 128;
/// Time after which a process without a request is disconnected.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time between two checks that the service still runs.
const LOOK: Duration = Duration::from_secs(1);
/// Pause after a connection could not be accepted, as when no descriptor is free.
const PAUSE: Duration = Duration::from_millis(10);

/// Source of a server's answers. The thread that runs the server calls it.
pub trait Service {
    /// True if the server is to go on; asked at least once in a second.
    fn goes_on(&self) -> bool;

    /// Returns pieces of a block.
    ///
    /// # Errors
    /// The reason why there are none.
    fn pieces(&self, request: &Request) -> Result<Reply<OwnedFd>, Refused>;

    /// Gives unused memory back to the driver. Returns the bytes given back.
    fn make_room(&self, room: &Room) -> u64;
}

/// Sockets that a process answers at.
#[derive(Debug)]
pub struct Server {
    /// Random part of the sockets' names.
    pub name: Random,
    /// Secret that importers must show; tokens have it.
    pub secret: Random,
    listeners: Vec<KeptDescriptor>,
    path: Option<PathBuf>,
}

/// A process that is connected.
struct Peer {
    socket: KeptDescriptor,
    until: Instant,
}

impl Server {
    /// Begins to listen, under a new name.
    ///
    /// # Errors
    /// The kernel gives no socket or no random bytes.
    pub fn open() -> io::Result<Server> {
        Server::open_in(&folder::of_user())
    }

    /// Begins to listen like [`Server::open`], with its file in this folder.
    pub(crate) fn open_in(folder: &Path) -> io::Result<Server> {
        let (name, secret) = (token::random()?, token::random()?);
        let mut server = Server {
            name,
            secret,
            listeners: vec![listen(&folder::in_network(&name)?)?],
            path: None,
        };
        // Without the file, processes in other network namespaces cannot find the server.
        if folder::make(folder) {
            folder::tidy(folder);
            let path = folder::path(folder, &name);
            if let Ok(listener) = SocketAddrUnix::new(&path)
                .map_err(io::Error::from)
                .and_then(|address| listen(&address))
            {
                server.listeners.push(listener);
                server.path = Some(path);
            }
        }
        Ok(server)
    }

    /// Closes a forked child's copies of the sockets. Takes no lock.
    pub fn close_in_child(&self) {
        self.listeners.iter().for_each(KeptDescriptor::close);
    }

    /// True until the program has closed all sockets.
    pub fn listens(&self) -> bool {
        self.listeners.iter().any(is_open)
    }

    /// Refuses connections and removes the file, at the end of the process.
    pub fn remove(&self) {
        self.close();
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }

    /// Refuses all later connections at once, so that no process waits.
    fn close(&self) {
        for listener in self.listeners.iter().flat_map(KeptDescriptor::prove) {
            let _ = net::shutdown(listener, net::Shutdown::Both);
        }
    }

    /// Answers requests until the service does not go on or the program has closed the sockets.
    pub fn run(&self, service: &impl Service) {
        let mut peers = Vec::new();
        while service.goes_on() && self.listens() {
            let now = Instant::now();
            peers.retain(|peer: &Peer| peer.until > now);
            let most = MOST.saturating_sub(peers.len());
            let listeners = self.listeners.iter().filter(|one| is_open(one)).take(most);
            if socket::wait(peers.iter().map(|peer| &peer.socket).chain(listeners), LOOK) {
                peers.retain_mut(|peer| self.serve(peer, service).is_ok());
                peers.extend(self.listeners.iter().take(most).filter_map(accept));
            }
        }
        self.close();
    }

    /// Answers a request, if there is one.
    ///
    /// # Errors
    /// The other process is to be disconnected.
    fn serve(&self, peer: &mut Peer, service: &impl Service) -> io::Result<()> {
        // One byte more than the longest request: a longer packet is no request.
        let mut bytes = [0; Ask::SIZE + 1];
        let Some(read) = socket::receive(&peer.socket, &mut bytes)? else {
            return Ok(());
        };
        match bytes.get(..read).and_then(Ask::decode) {
            Some(Ask::Pieces(request)) if token::is_same(&request.secret, &self.secret) => {
                send(&peer.socket, &service.pieces(&request))?;
            }
            Some(Ask::Room(room)) => {
                let given = service.make_room(&room);
                socket::send(&peer.socket, &given.to_ne_bytes())?;
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        peer.until = Instant::now() + PATIENCE;
        Ok(())
    }
}

fn is_open(listener: &KeptDescriptor) -> bool {
    listener.prove().is_ok()
}

fn listen(address: &SocketAddrUnix) -> io::Result<KeptDescriptor> {
    let socket = socket::unconnected(SocketFlags::NONBLOCK)?;
    let proven = socket.prove()?;
    net::bind(proven, address)?;
    net::listen(proven, QUEUE)?;
    Ok(socket)
}

/// Accepts a connection, if there is one and it is this user's.
fn accept(listener: &KeptDescriptor) -> Option<Peer> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // An accepted connection cannot be put back: nothing may come between the proof and the call.
    let socket = match net::accept_with(listener.prove().ok()?, flags) {
        Ok(socket) => KeptDescriptor::keep(socket).ok()?,
        Err(Errno::AGAIN) => return None,
        Err(_) => {
            std::thread::sleep(PAUSE);
            return None;
        }
    };
    let until = Instant::now() + PATIENCE;
    is_peer(&socket).then_some(Peer { socket, until })
}

/// Sends a reply with its descriptors. The importer gets copies of them.
fn send(socket: &KeptDescriptor, reply: &Result<Reply<OwnedFd>, Refused>) -> io::Result<()> {
    let bytes = message::encode(reply);
    let pieces = reply.iter().flat_map(|reply| &reply.pieces);
    let files: Vec<_> = pieces.map(|piece| piece.file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    net::sendmsg(
        socket.prove()?,
        &[IoSlice::new(&bytes)],
        &mut control,
        flags,
    )?;
    Ok(())
}

#[cfg(test)]
mod tests;
