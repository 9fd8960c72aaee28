//! The user's other processes, which are asked for memory that they do not use.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, RecvFlags, SendFlags, SocketAddrUnix};

use crate::folder;
use crate::message::{Ask, Room};
use crate::socket::{connect_at_once, is_same_user};
use crate::token::Random;

/// Asks all other processes of this user that have a server for memory that they do not use, at the same time, and waits for their
/// answers, this long at most. Returns the bytes that went back to the driver. `own`: this process's own server.
pub fn make_room(own: Option<&Random>, room: &Room, patience: Duration) -> u64 {
    ask(connected(&folder::of_user(), own), room, patience)
}

/// Asks the servers at the other ends of these connections.
fn ask(mut asked: Vec<OwnedFd>, room: &Room, patience: Duration) -> u64 {
    let bytes = Ask::Room(*room).encode();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    asked.retain(|socket| net::send(socket, &bytes, flags).is_ok());
    let until = Instant::now() + patience;
    let mut given = 0;
    while !asked.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        let mut waited: Vec<_> = asked
            .iter()
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        let Ok(left) = Timespec::try_from(left) else {
            break;
        };
        match poll(&mut waited, Some(&left)) {
            Ok(0) => break,
            Ok(_) => {}
            // A signal.
            Err(_) if Instant::now() < until => continue,
            Err(_) => break,
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

/// Connections to this user's servers.
fn connected(folder: &Path, own: Option<&Random>) -> Vec<OwnedFd> {
    let here = folder::all_in_network();
    let mut found: Vec<_> = here
        .iter()
        .filter(|name| Some(*name) != own)
        .filter_map(|name| connect_at_once(&folder::in_network(name).ok()?).ok())
        .collect();
    if folder::is_private(folder) {
        // Those of other network namespaces.
        let there = folder::all_in(folder).into_iter();
        let there = there.filter(|name| Some(name) != own && !here.contains(name));
        found.extend(there.filter_map(|name| {
            let address = SocketAddrUnix::new(folder::path(folder, &name)).ok()?;
            connect_at_once(&address).ok()
        }));
    }
    found.retain(|socket| is_same_user(socket));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Refused, Reply, Request};
    use crate::server::{Server, Service};
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    const PATIENCE: Duration = Duration::from_secs(5);

    /// Gives so many bytes of its device.
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

    fn private() -> tempfile::TempDir {
        let mode = std::fs::Permissions::from_mode(0o700);
        let made = tempfile::Builder::new().permissions(mode).tempdir();
        made.expect("a folder")
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
                let room = Room { device, bytes: 1 };
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
        let found = || connected(folder.path(), None).len();
        let server = Server::open_in(folder.path()).expect("a server");
        assert!(folder::all_in_network().contains(&server.name));
        assert_eq!(folder::all_in(folder.path()), [server.name]);
        assert!(found() >= 1);
        let name = server.name;
        drop(server);
        assert!(!folder::all_in_network().contains(&name));
        // Its file is left, and nobody listens.
        assert_eq!(folder::all_in(folder.path()), [name]);
        let address = SocketAddrUnix::new(folder::path(folder.path(), &name));
        assert!(connect_at_once(&address.expect("an address")).is_err());
    }
}
