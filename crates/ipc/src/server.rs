//! The end that answers: one thread serves all other processes, and waits for none of them.

use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

use crate::folder;
use crate::message::{self, Ask, BATCH, Refused, Reply, Request, Room};
use crate::socket::is_same_user;
use crate::token::{self, Random};

/// Processes that are served at once; others wait in the queue of the socket.
const MOST: usize = 64;
/// Processes that wait there.
const QUEUE: i32 = 128;
/// A process that asks for nothing for so long is let go.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the thread looks whether it is to go on.
const LOOK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
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
    listeners: Vec<OwnedFd>,
    path: Option<PathBuf>,
}

/// A process that is connected.
struct Peer {
    socket: OwnedFd,
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

    /// The descriptors of the sockets: for a forked child, which must not keep them open.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.listeners.iter().map(AsRawFd::as_raw_fd)
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
        for listener in &self.listeners {
            let _ = net::shutdown(listener, net::Shutdown::Both);
        }
    }

    /// Answers requests until the service does not go on, and listens no more then.
    pub fn run(&self, service: &impl Service) {
        self.answer(service);
        self.close();
    }

    fn answer(&self, service: &impl Service) {
        let mut peers = Vec::new();
        while service.goes_on() {
            let now = Instant::now();
            peers.retain(|peer: &Peer| peer.until > now);
            let listeners: &[OwnedFd] = match peers.len() < MOST {
                true => &self.listeners,
                false => &[],
            };
            let sockets = peers.iter().map(|peer| &peer.socket);
            let mut waited: Vec<_> = sockets
                .chain(listeners)
                .map(|socket| PollFd::new(socket, PollFlags::IN))
                .collect();
            if !poll(&mut waited, Some(&LOOK)).is_ok_and(|ready| ready > 0) {
                continue;
            }
            let mut ready = waited.iter().map(|one| !one.revents().is_empty());
            let of_peers: Vec<bool> = ready.by_ref().take(peers.len()).collect();
            let of_listeners: Vec<bool> = ready.collect();
            let mut asks = of_peers.into_iter();
            peers.retain_mut(|peer| {
                !asks.next().unwrap_or(false) || self.serve(peer, service).is_some()
            });
            let new = listeners.iter().zip(of_listeners);
            for (listener, _) in new.filter(|(_, is_ready)| *is_ready) {
                peers.extend(accept(listener));
            }
        }
    }

    /// Answers one request. `None`: the other process is to be let go.
    fn serve(&self, peer: &mut Peer, service: &impl Service) -> Option<()> {
        // One byte more than a request has: a longer packet is none.
        let mut bytes = [0; Ask::SIZE + 1];
        let (read, _) = net::recv(&peer.socket, &mut bytes[..], RecvFlags::DONTWAIT).ok()?;
        match Ask::decode(bytes.get(..read)?)? {
            Ask::Pieces(request) if token::is_same(&request.secret, &self.secret) => {
                send(&peer.socket, &service.pieces(&request)).ok()?;
            }
            Ask::Pieces(_) => return None,
            Ask::Room(room) => {
                let given = service.make_room(&room).to_ne_bytes();
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                net::send(&peer.socket, &given, flags).ok()?;
            }
        }
        peer.until = Instant::now() + PATIENCE;
        Some(())
    }
}

fn listen(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    net::bind(&socket, address)?;
    net::listen(&socket, QUEUE)?;
    Ok(socket)
}

/// A process that connects, if it is this user's.
fn accept(listener: &OwnedFd) -> Option<Peer> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = match net::accept_with(listener, flags) {
        Ok(socket) => socket,
        Err(_) => {
            std::thread::sleep(PAUSE);
            return None;
        }
    };
    let until = Instant::now() + PATIENCE;
    is_same_user(&socket).then_some(Peer { socket, until })
}

/// Sends a reply with its descriptors, of which the importer gets copies.
fn send(socket: &OwnedFd, reply: &Result<Reply<OwnedFd>, Refused>) -> io::Result<()> {
    let bytes = message::encode(reply);
    let pieces = reply.iter().flat_map(|reply| &reply.pieces);
    let files: Vec<_> = pieces.map(|piece| piece.file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags)?;
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
                net::send(&socket, &vec![1; bytes], SendFlags::empty()).expect("sent");
                let (read, _) =
                    net::recv(&socket, &mut [0; 8][..], RecvFlags::empty()).unwrap_or_default();
                assert_eq!(read, 0, "a packet of {bytes} bytes has an answer");
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
    fn sockets_that_nobody_listens_on_are_removed() {
        let folder = private();
        let left = folder::path(folder.path(), &[7; 16]);
        let young = folder::path(folder.path(), &[8; 16]);
        for path in [&left, &young] {
            drop(listen(&SocketAddrUnix::new(path).expect("an address")).expect("a socket"));
        }
        let long_ago = rustix::fs::Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            last_modification: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
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
