//! The sockets at which this process answers others, and the thread that does. It waits for no other process.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::sleep;
use std::time::Duration;

use gpushim_ipc::{Refused, Reply, Request, Room, Server, Service};
use gpushim_trace::background::{self, Background, is_left_alone};

use crate::base::{addresses, boundary};
use crate::record::trace;

/// What others are answered with.
pub struct Answers {
    /// Pieces of a block, for an importer.
    pub pieces: fn(&Request) -> Result<Reply<OwnedFd>, Refused>,
    /// Gives memory that is not in use back to the driver, for a process that has none; the bytes.
    pub make_room: fn(&Room) -> u64,
}

/// Addresses that the thread takes (its stack, and what the C library reserves for its `malloc`), and that the program can
/// still take then, bytes.
const BESIDE: usize = 256 << 20;

/// Set once. An error: why there is none.
static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();
/// The sockets, for a forked child; -1: none.
static SOCKETS: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];
/// Set when the process ends: the driver may be gone from then on.
static STOPPED: AtomicBool = AtomicBool::new(false);
/// Held while the thread calls the driver, so that the end of the process waits for that.
static WORKING: Mutex<()> = Mutex::new(());

/// Starts the thread, once.
pub fn start(answers: Answers) {
    SERVER.get_or_init(|| {
        let opened = open(answers);
        if let Err(why) = &opened {
            trace::fact("ipc", why);
        }
        opened
    });
}

/// The sockets, if the thread was started.
pub fn server() -> Option<&'static Server> {
    SERVER.get()?.as_ref().ok()
}

/// Why there are none, if the thread could not be started.
pub fn why_none() -> Option<&'static str> {
    Some(SERVER.get()?.as_ref().err()?)
}

fn open(answers: Answers) -> Result<Server, String> {
    if !addresses::are_free(BESIDE) {
        return Err("fewer than 256 MiB of addresses are left (ulimit -v)".to_owned());
    }
    let server = Server::open();
    let server =
        server.map_err(|error| format!("there is no socket for other processes: {error}"))?;
    // SAFETY: both handlers are `extern "C"` functions that do not unwind.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
        libc::atexit(stop);
    }
    match background::spawn("gpushim-ipc", 256 << 10, move || serve(answers)) {
        Ok(_) => {
            for (slot, socket) in SOCKETS.iter().zip(server.descriptors()) {
                slot.store(socket, Ordering::Release);
            }
            Ok(server)
        }
        Err(error) => {
            server.remove();
            Err(format!("there is no thread for other processes: {error}"))
        }
    }
}

/// A forked child inherits the sockets, but not the thread that answers. It closes them, so that the kernel refuses other
/// processes once the parent has ended.
extern "C" fn in_child() {
    for slot in &SOCKETS {
        let socket = slot.swap(-1, Ordering::AcqRel);
        if socket >= 0 {
            // SAFETY: the child's copy of a socket that only the parent's thread uses.
            unsafe { libc::close(socket) };
        }
    }
}

extern "C" fn stop() {
    STOPPED.store(true, Ordering::Release);
    if boundary::bypassed() {
        // In a forked child: the sockets are the parent's.
        return;
    }
    if let Some(server) = server() {
        server.remove();
    }
    // Waits for a call in progress, but not for ever: the process wants to end.
    for _ in 0..100 {
        if WORKING.try_lock().is_ok() {
            break;
        }
        sleep(Duration::from_millis(1));
    }
}

/// The thread.
fn serve(answers: Answers) {
    let _background = Background::new();
    // The thread that starts this one is about to store it.
    if let Ok(server) = SERVER.wait() {
        server.run(&answers);
    }
}

/// Calls the driver, unless the process ends.
fn at_work<R>(refused: impl Fn() -> R, work: impl FnOnce() -> R) -> R {
    let Ok(_working) = WORKING.lock() else {
        return refused();
    };
    if STOPPED.load(Ordering::Acquire) {
        return refused();
    }
    boundary::run(refused, work)
}

impl Service for Answers {
    fn goes_on(&self) -> bool {
        !STOPPED.load(Ordering::Acquire) && !boundary::bypassed() && !is_left_alone()
    }

    fn pieces(&self, request: &Request) -> Result<Reply<OwnedFd>, Refused> {
        at_work(|| Err(Refused::Gone), || (self.pieces)(request))
    }

    fn make_room(&self, room: &Room) -> u64 {
        at_work(|| 0, || (self.make_room)(room))
    }
}
