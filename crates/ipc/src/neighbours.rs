//! The user's other processes, which are asked for memory that they do not use.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketAddrUnix};

use crate::folder;
use crate::message::{Ask, Room};
use crate::socket::{connect_at_once, is_same_user};
use crate::token::Random;

/// Asks all other processes of this user that have a server for memory that they do not use, at the same time, and waits for their
/// answers: until there is as much as is wanted, and this long at most. Returns the bytes that went back to the driver.
/// `own`: this process's own server.
pub fn make_room(own: Option<&Random>, room: &Room, patience: Duration) -> u64 {
    let here = folder::all_in_network();
    ask(connected(&here, &folder::of_user(), own), room, patience)
}

/// Asks the servers at the other ends of these connections.
fn ask(mut asked: Vec<OwnedFd>, room: &Room, patience: Duration) -> u64 {
    let bytes = Ask::Room(*room).encode();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    asked.retain(|socket| net::send(socket, &bytes, flags).is_ok());
    let until = Instant::now() + patience;
    let mut given = 0;
    while !asked.is_empty() && given < room.bytes {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now()));
        let mut waited: Vec<_> = asked
            .iter()
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        match left.map(|left| poll(&mut waited, Some(&left))) {
            Ok(Ok(1..)) => {}
            // A signal.
            Ok(Err(Errno::INTR)) => continue,
            _ => break,
        }
        let ready: Vec<bool> = waited.iter().map(|one| !one.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        asked.retain(|socket| {
            let answers = ready.next().unwrap_or(false);
            if answers {
                given += answer(socket).unwrap_or(0);
            }
            !answers
        });
    }
    given
}

/// The bytes that a process gave back, as it says.
fn answer(socket: &OwnedFd) -> Option<u64> {
    let mut bytes = [0; 8];
    let (read, _) = net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT).ok()?;
    (read == bytes.len()).then(|| u64::from_ne_bytes(bytes))
}

/// Connections to this user's servers: those in this network namespace, and those of others that have a file in the folder.
fn connected(here: &[Random], folder: &Path, own: Option<&Random>) -> Vec<OwnedFd> {
    let others = here.iter().filter(|name| Some(*name) != own);
    let mut addresses: Vec<_> = others.map(folder::in_network).collect();
    if folder::is_private(folder) {
        let there = folder::all_in(folder).into_iter();
        let there = there.filter(|name| Some(name) != own && !here.contains(name));
        let paths = there.map(|name| folder::path(folder, &name));
        addresses.extend(paths.map(|path| Ok(SocketAddrUnix::new(path)?)));
    }
    let sockets = addresses.into_iter().flatten();
    let sockets = sockets.filter_map(|address| connect_at_once(&address).ok());
    sockets.filter(|socket| is_same_user(socket)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::private;
    use crate::message::{Refused, Reply, Request};
    use crate::server::{Server, Service};
    use std::sync::atomic::{AtomicBool, Ordering};

    const PATIENCE: Duration = Duration::from_secs(5);

    /// Gives back `bytes` of one device, each time that it is asked.
    struct Giver {
        device: [u8; 16],
        bytes: u64,
        stops: AtomicBool,
    }

    impl Giver {
        fn new(device: [u8; 16], bytes: u64) -> Giver {
            let stops = AtomicBool::new(false);
            Giver {
                device,
                bytes,
                stops,
            }
        }
    }

    impl Service for Giver {
        fn goes_on(&self) -> bool {
            !self.stops.load(Ordering::Relaxed)
        }

        fn pieces(&self, _: &Request) -> Result<Reply<OwnedFd>, Refused> {
            Err(Refused::Gone)
        }

        fn make_room(&self, room: &Room) -> u64 {
            if room.device == self.device {
                self.bytes
            } else {
                0
            }
        }
    }

    fn connection(server: &Server) -> OwnedFd {
        let address = folder::in_network(&server.name).expect("an address");
        connect_at_once(&address).expect("a connection")
    }

    #[test]
    fn the_answers_of_all_are_added_up() {
        let folder = private();
        let givers = [1, 10, 100].map(|bytes| Giver::new([7; 16], bytes));
        let servers = [(); 3].map(|()| Server::open_in(folder.path()).expect("a server"));
        std::thread::scope(|scope| {
            for (server, giver) in servers.iter().zip(&givers) {
                scope.spawn(|| server.run(giver));
            }
            let asked = |device| {
                let room = Room { device, bytes: 111 };
                ask(servers.iter().map(connection).collect(), &room, PATIENCE)
            };
            assert_eq!(asked([7; 16]), 111);
            assert_eq!(asked([8; 16]), 0);
            for giver in &givers {
                giver.stops.store(true, Ordering::Relaxed);
            }
        });
        servers.iter().for_each(Server::remove);
    }

    #[test]
    fn a_server_that_does_not_answer_is_waited_for_as_long_as_asked() {
        let folder = private();
        let server = Server::open_in(folder.path()).expect("a server");
        let room = Room {
            device: [7; 16],
            bytes: 1,
        };
        let (patience, since) = (Duration::from_millis(100), Instant::now());
        assert_eq!(ask(vec![connection(&server)], &room, patience), 0);
        assert!((patience..PATIENCE).contains(&since.elapsed()));
        let since = Instant::now();
        assert_eq!(ask(Vec::new(), &room, PATIENCE), 0);
        assert!(since.elapsed() < PATIENCE);
        server.remove();
    }

    #[test]
    fn servers_are_found_in_the_network_and_in_the_folder() {
        let folder = private();
        let server = Server::open_in(folder.path()).expect("a server");
        let name = server.name;
        let found = |here: &[Random], own| connected(here, folder.path(), own).len();
        // The end of a connection at the server has the server's name.
        let open = connection(&server);
        let all = folder::all_in_network();
        assert_eq!(all.iter().filter(|one| **one == name).count(), 1);
        assert_eq!(folder::all_in(folder.path()), [name]);
        assert_eq!(found(&[name], None), 1, "the file is of the same server");
        assert_eq!(found(&[], None), 1, "by the file");
        assert_eq!(found(&[name], Some(&name)), 0);
        assert_eq!(found(&[], Some(&name)), 0);
        drop((server, open));
        assert!(!folder::all_in_network().contains(&name));
        // The file of its socket is still there, but no process listens on it.
        assert_eq!(folder::all_in(folder.path()), [name]);
        assert_eq!(found(&[name], None) + found(&[], None), 0);
    }

    #[test]
    fn a_server_that_stopped_is_not_waited_for() {
        let folder = private();
        let server = Server::open_in(folder.path()).expect("a server");
        let giver = Giver::new([7; 16], 1);
        giver.stops.store(true, Ordering::Relaxed);
        server.run(&giver);
        assert_eq!(connected(&[server.name], folder.path(), None).len(), 0);
        assert_eq!(connected(&[], folder.path(), None).len(), 0);
        server.remove();
    }
}
