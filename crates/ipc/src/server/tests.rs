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

/// A service with files that contain the number of the piece.
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
            at: 2 * bytes,
            bytes,
        }
    };
    let first = request.from.div_ceil(2) as u32;
    let pieces: Vec<_> = (first..63).take(BATCH).map(piece).collect();
    Ok(Reply {
        rest: 63 - first - pieces.len() as u32,
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
            from: 2 * u64::from(seen),
        };
        let reply = link.fetch(&request).expect("an answer").expect("pieces");
        assert_eq!((reply.bytes, reply.offset), (1, 2));
        assert_eq!(seen + reply.pieces.len() as u32 + reply.rest, 63);
        assert!(!reply.pieces.is_empty());
        for piece in reply.pieces {
            let mut number = [0; 4];
            File::from(piece.file)
                .read_exact(&mut number)
                .expect("its contents");
            assert_eq!(u32::from_ne_bytes(number), seen);
            assert_eq!(
                (piece.at, piece.bytes),
                (2 * u64::from(seen), u64::from(seen))
            );
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
            from: 0,
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
                from: 0
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
