//! Requests to the user's other processes for memory that they do not use.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gpushim_descriptors::KeptDescriptor;
use rustix::net::SocketAddrUnix;

use crate::folder;
use crate::message::{Ask, Room};
use crate::socket::{self, connect_at_once};
use crate::token::Random;

/// Number of patience times for which a process is not asked again after it has not answered.
const SILENCE: u32 = 10;

/// Record of other processes that did not answer.
#[derive(Debug, Default)]
pub struct PeerProcesses {
    /// Processes that did not answer in time, and the time until which they are not asked again.
    /// They may be stopped.
    silent: Mutex<Vec<(Random, Instant)>>,
}

/// A process that is about to answer: its server's name, and the connection.
type Asked = (Random, KeptDescriptor);

impl PeerProcesses {
    /// Starts without a record of any process.
    pub const fn new() -> PeerProcesses {
        let silent = Mutex::new(Vec::new());
        PeerProcesses { silent }
    }

    /// Asks all other processes of this user that have a server, at the same time, to free unused
    /// memory. Returns the bytes that they gave back to the driver.
    ///
    /// Waits until all have answered or `enough` bytes were given back, but no longer than
    /// `patience`. A process that has not answered by then is not asked for ten times as long.
    ///
    /// `own`: this process's own server.
    pub fn make_room(
        &self,
        own: Option<&Random>,
        room: &Room,
        enough: u64,
        patience: Duration,
    ) -> u64 {
        let here = folder::all_in_network();
        let connect = |silent: &[Random]| {
            let is_wanted = |name: &Random| Some(name) != own && !silent.contains(name);
            connected(&here, &folder::of_user(), is_wanted)
        };
        self.ask(connect, room, enough, patience)
    }

    /// Asks the processes that `connect` connects to. Its argument is the names of silent ones.
    fn ask(
        &self,
        connect: impl FnOnce(&[Random]) -> Vec<Asked>,
        room: &Room,
        enough: u64,
        patience: Duration,
    ) -> u64 {
        let words = Ask::Room(*room).encode();
        let mut asked = connect(&self.silent());
        asked.retain(|(_, socket)| socket::send(socket, &words).is_ok());
        let until = Instant::now() + patience;
        let mut given: u64 = 0;
        while given < enough && !asked.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if !socket::wait(asked.iter().map(|(_, socket)| socket), left) {
                self.are_silent(&asked, SILENCE * patience);
                break;
            }
            given = given.saturating_add(take_answers(&mut asked));
        }
        given
    }

    fn silent(&self) -> Vec<Random> {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        silent.retain(|(_, until)| *until > now);
        silent.iter().map(|(name, _)| *name).collect()
    }

    fn are_silent(&self, asked: &[Asked], time: Duration) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + time;
        silent.extend(asked.iter().map(|(name, _)| (*name, until)));
    }
}

/// Removes processes that have answered or are gone. Returns the bytes that they gave back, by
/// their answers.
fn take_answers(asked: &mut Vec<Asked>) -> u64 {
    let mut given: u64 = 0;
    asked.retain(|(_, socket)| {
        let mut bytes = [0; 8];
        let received = socket::receive(socket, &mut bytes);
        if matches!(received, Ok(Some(8))) {
            given = given.saturating_add(u64::from_ne_bytes(bytes));
        }
        matches!(received, Ok(None))
    });
    given
}

/// Connects to servers of this user for which `is_wanted` is true. They are found in this network
/// namespace, or by a file in the folder.
fn connected(here: &[Random], folder: &Path, is_wanted: impl Fn(&Random) -> bool) -> Vec<Asked> {
    let in_network = here.iter().map(|name| (*name, folder::in_network(name)));
    let mut addresses: Vec<_> = in_network.collect();
    if folder::is_private(folder) {
        let there = folder::all_in(folder).into_iter();
        let there = there.filter(|name| !here.contains(name));
        addresses.extend(there.map(|name| {
            let address = SocketAddrUnix::new(folder::path(folder, &name));
            (name, address.map_err(Into::into))
        }));
    }
    let wanted = addresses.into_iter().filter(|(name, _)| is_wanted(name));
    let sockets =
        wanted.filter_map(|(name, address)| Some((name, connect_at_once(&address.ok()?).ok()?)));
    sockets.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::private;
    use crate::message::{Refused, Reply, Request};
    use crate::server::{Server, Service};
    use std::os::fd::OwnedFd;
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

    fn connection(server: &Server) -> Asked {
        let address = folder::in_network(&server.name).expect("an address");
        let socket = connect_at_once(&address).expect("a connection");
        (server.name, socket)
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
                let room = Room {
                    device,
                    bytes: 111,
                    ledger: [0; 16],
                };
                let connect = |_: &[Random]| servers.iter().map(connection).collect();
                PeerProcesses::new().ask(connect, &room, 111, PATIENCE)
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
    fn a_server_that_does_not_answer_is_waited_for_once_and_asked_again_later() {
        let folder = private();
        let server = Server::open_in(folder.path()).expect("a server");
        let giver = Giver::new([7; 16], 1);
        let peers = PeerProcesses::new();
        let asked = |patience| {
            let connect = |silent: &[Random]| {
                let is_asked = !silent.contains(&server.name);
                is_asked.then(|| connection(&server)).into_iter().collect()
            };
            let device = [7; 16];
            let since = Instant::now();
            let given = peers.ask(
                connect,
                &Room {
                    device,
                    bytes: 1,
                    ledger: [0; 16],
                },
                1,
                patience,
            );
            (given, since.elapsed())
        };
        let patience = Duration::from_millis(200);
        let (given, took) = asked(patience);
        assert!(given == 0 && took >= patience, "{given} {took:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| server.run(&giver));
            let since = Instant::now();
            let mut given = 0;
            while given == 0 && since.elapsed() < PATIENCE {
                given = asked(PATIENCE).0;
                std::thread::sleep(Duration::from_millis(10));
            }
            giver.stops.store(true, Ordering::Relaxed);
            assert_eq!(given, 1);
            assert!(since.elapsed() >= 5 * patience, "{:?}", since.elapsed());
        });
        server.remove();
    }

    #[test]
    fn servers_are_found_in_the_network_and_in_the_folder() {
        let folder = private();
        let server = Server::open_in(folder.path()).expect("a server");
        let name = server.name;
        let found =
            |here: &[Random], own| connected(here, folder.path(), |name| Some(name) != own).len();
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
        assert_eq!(connected(&[server.name], folder.path(), |_| true).len(), 0);
        assert_eq!(connected(&[], folder.path(), |_| true).len(), 0);
        server.remove();
    }
}
