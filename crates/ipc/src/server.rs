//! The end that answers: one thread serves all other processes, and waits for none of them.

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

/// Processes that are served at once; others wait in the queue of the socket.
const MOST: usize = 64;
/// Processes that wait there.
const QUEUE: i32 = 128;
/// A process that asks for nothing for so long is let go.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the thread looks whether it is to go on.
const LOOK: Duration = Duration::from_secs(1);
/// Pause after connections could not be accepted, for want of descriptors.
const PAUSE: Duration = Duration::from_millis(10);

/// What a server answers with. It is called by the thread that runs the server.
pub trait Service {
    /// Whether to go on; asked at least once in a second.
    fn goes_on(&self) -> bool;

    /// Pieces of a block.
    ///
    /// # Errors
    /// Why there are none.
    fn pieces(&self, request: &Request) -> Result<Reply<OwnedFd>, Refused>;

    /// Gives memory that is not in use back to the driver; the bytes that went back.
    fn make_room(&self, room: &Room) -> u64;
}

/// The sockets that a process answers at.
#[derive(Debug)]
pub struct Server {
    /// The random part of their name.
    pub name: Random,
    /// What importers must know: it stands in tokens.
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
    /// There are no sockets or no random bytes to be had.
    pub fn open() -> io::Result<Server> {
        Server::open_in(&folder::of_user())
    }

    /// As [`Server::open`], with the socket that is a file in this folder.
    pub(crate) fn open_in(folder: &Path) -> io::Result<Server> {
        let (name, secret) = (token::random()?, token::random()?);
        let mut server = Server {
            name,
            secret,
            listeners: vec![listen(&folder::in_network(&name)?)?],
            path: None,
        };
        // Without it, processes in other network namespaces find nothing.
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

    /// The process ends: removes what would be left of it.
    pub fn remove(&self) {
        self.close();
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }

    /// From here on who connects is refused, and need not wait.
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
    /// The other process is to be let go.
    fn serve(&self, peer: &mut Peer, service: &impl Service) -> io::Result<()> {
        // One byte more than a request has: a longer packet is none.
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

/// A process that connects, if there is one and it is this user's.
fn accept(listener: &KeptDescriptor) -> Option<Peer> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // A connection that was accepted cannot be put back: nothing is between the proof and the call.
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

/// Sends a reply with its descriptors, of which the importer gets copies.
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
mod tests {
    use super::*;
    use crate::folder::tests::private;
    use crate::link::Link;
    use crate::message::Piece;
    use crate::socket;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    /// Runs `test` while the server answers with files that contain the number of the piece.
    fn served(folder: &Path, test: impl FnOnce(&Server)) {
        let server = Server::open_in(folder).expect("a server");
        let service = Numbered::default();
        thread::scope(|scope| {
            scope.spawn(|| server.run(&service));
            let tested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&server)));
            service.stops.store(true, Ordering::Relaxed);
            tested.unwrap_or_else(|why| std::panic::resume_unwind(why));
        });
        server.remove();
    }

    /// Files that contain the number of the piece.
    #[derive(Default)]
    struct Numbered {
        stops: AtomicBool,
    }

    impl Service for Numbered {
        fn goes_on(&self) -> bool {
            !self.stops.load(Ordering::Relaxed)
        }

        fn pieces(&self, request: &Request) -> Result<Reply<OwnedFd>, Refused> {
            of_three_and_sixty(request)
        }

        /// Device 7 has 5 bytes, and no other has any.
        fn make_room(&self, room: &Room) -> u64 {
            if room.device == [7; 16] { 5 } else { 0 }
        }
    }

    /// Block 1 has 63 pieces, and there is no other.
    fn of_three_and_sixty(request: &Request) -> Result<Reply<OwnedFd>, Refused> {
        if request.block != 1 {
            return Err(Refused::Gone);
        }
        let piece = |number: u32| {
            let mut file = tempfile::tempfile().expect("a file");
            io::Write::write_all(&mut file, &number.to_ne_bytes()).expect("written");
            io::Seek::rewind(&mut file).expect("rewound");
            let bytes = u64::from(number);
            Piece {
                file: file.into(),
                bytes,
            }
        };
        let pieces = (request.first..63).take(BATCH).map(piece).collect();
        Ok(Reply {
            total: 63,
            bytes: 1,
            offset: 2,
            pieces,
        })
    }

    fn all_of(link: &Link, server: &Server) {
        let mut seen = 0;
        while seen < 63 {
            let request = Request {
                secret: server.secret,
                block: 1,
                first: seen,
            };
            let reply = link.fetch(&request).expect("an answer").expect("pieces");
            assert_eq!((reply.total, reply.bytes, reply.offset), (63, 1, 2));
            assert!(!reply.pieces.is_empty());
            for piece in reply.pieces {
                let mut number = [0; 4];
                File::from(piece.file)
                    .read_exact(&mut number)
                    .expect("its contents");
                assert_eq!(u32::from_ne_bytes(number), seen);
                assert_eq!(piece.bytes, u64::from(seen));
                seen += 1;
            }
        }
    }

    #[test]
    fn pieces_arrive_by_either_socket() {
        let folder = private();
        served(folder.path(), |server| {
            all_of(&Link::to(&server.name).expect("a link"), server);
            let link = Link::under(folder.path(), &server.name).expect("a link by the file");
            all_of(&link, server);
            let other = Request {
                secret: server.secret,
                block: 2,
                first: 0,
            };
            let refused = link.fetch(&other).expect("an answer");
            assert_eq!(refused.expect_err("another block"), Refused::Gone);
        });
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
    }

    #[test]
    fn a_wrong_secret_and_a_wrong_packet_end_the_connection() {
        let folder = private();
        served(folder.path(), |server| {
            let link = Link::to(&server.name).expect("a link");
            let mut secret = server.secret;
            secret[15] ^= 1;
            assert!(
                link.fetch(&Request {
                    secret,
                    block: 1,
                    first: 0
                })
                .is_err()
            );
            let address = folder::in_network(&server.name).expect("an address");
            for bytes in [0, 1, Ask::SIZE - 1, Ask::SIZE, Ask::SIZE + 1, 4096] {
                let socket = socket::connect(&address).expect("a connection");
                socket::send(&socket, &vec![1; bytes]).expect("sent");
                assert!(socket::wait([&socket].into_iter(), PATIENCE));
                let read = socket::receive(&socket, &mut [0; 8]).unwrap_or(Some(0));
                assert_eq!(read, Some(0), "a packet of {bytes} bytes has an answer");
            }
        });
    }

    #[test]
    fn importers_that_say_nothing_keep_no_other_waiting() {
        let folder = private();
        served(folder.path(), |server| {
            let address = folder::in_network(&server.name).expect("an address");
            let silent: Vec<_> = (0..MOST - 1)
                .map(|_| socket::connect(&address).expect("a connection"))
                .collect();
            let since = Instant::now();
            all_of(&Link::to(&server.name).expect("a link"), server);
            assert!(since.elapsed() < PATIENCE / 2, "{:?}", since.elapsed());
            drop(silent);
        });
    }

    #[test]
    fn numbers_that_the_program_took_are_left_alone() {
        let folder = private();
        let server = Server::open_in(folder.path()).expect("a server");
        let name = token::random().expect("random bytes");
        let address = folder::in_network(&name).expect("an address");
        let program = listen(&address).expect("the program's own socket");
        let number = |of: &KeptDescriptor| of.prove().expect("it is open").as_raw_fd();
        for listener in &server.listeners {
            // SAFETY: both are open; what had the number is closed, which is what is tested.
            assert!(unsafe { libc::dup2(number(&program), number(listener)) } >= 0);
        }
        let client = socket::connect(&address).expect("a connection to the program");
        assert!(!server.listens());
        // It returns although the service goes on, and shuts nothing down.
        server.run(&Numbered::default());
        server.close_in_child();
        server.remove();
        assert!(accept(&program).is_some(), "another one had the connection");
        drop(client);
        assert!(
            socket::connect(&address).is_ok(),
            "the socket still listens"
        );
    }

    #[test]
    fn sockets_that_nobody_listens_on_are_removed() {
        let folder = private();
        let left = folder::path(folder.path(), &[7; 16]);
        let young = folder::path(folder.path(), &[8; 16]);
        for path in [&left, &young] {
            drop(listen(&SocketAddrUnix::new(path).expect("an address")).expect("a socket"));
        }
        let start = rustix::fs::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let long_ago = rustix::fs::Timestamps {
            last_access: start,
            last_modification: start,
        };
        rustix::fs::utimensat(
            rustix::fs::CWD,
            &left,
            &long_ago,
            rustix::fs::AtFlags::empty(),
        )
        .expect("a time");
        folder::tidy(folder.path());
        assert!(!left.exists() && young.exists());
    }

    #[test]
    fn a_dead_exporter_is_an_error_at_once() {
        let folder = private();
        let name = Server::open_in(folder.path()).expect("a server").name;
        let since = Instant::now();
        assert!(Link::to(&name).is_err());
        assert!(Link::under(folder.path(), &name).is_err());
        assert!(since.elapsed() < PATIENCE / 2, "{:?}", since.elapsed());
    }
}
