//! The sockets at which this process answers others, and the thread for it. The thread waits for no
//! other process.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock};

use gpushim_ipc::{Random, Refused, Reply, Request, Room, Server, Service};
use gpushim_trace::background::{self, Background, is_left_alone};

use crate::base::{addresses, boundary, ending};
use crate::record::trace;

/// Functions that answer other processes.
pub struct Answers {
    /// Pieces of a block, for an importer.
    pub pieces: fn(&Request) -> Result<Reply<OwnedFd>, Refused>,
    /// Gives unused memory back to the driver, for a process that has none. Returns the bytes.
    pub make_room: fn(&Room) -> u64,
}

/// Bytes of addresses that the thread takes (its stack, and the C library's reserve for its
/// `malloc`) and that the program can still take then.
const BESIDE: usize = 256 << 20;

/// The reason if there are no sockets any more.
const CLOSED: &str = "the program closed the sockets for other processes";

/// The server, set once. The error is the reason if there is none.
static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();
/// Lock held while the thread calls the driver, so that the end of the process waits for the call.
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

/// Returns the sockets. `None`: not yet opened.
///
/// # Errors
/// The reason if there are none.
pub fn server() -> Option<Result<&'static Server, &'static str>> {
    Some(match SERVER.get()? {
        Ok(server) if server.listens() => Ok(server),
        Ok(_) => Err(CLOSED),
        Err(why) => Err(why),
    })
}

/// Returns the name of the sockets, if they were ever opened.
pub fn name() -> Option<&'static Random> {
    Some(&SERVER.get()?.as_ref().ok()?.name)
}

fn open(answers: Answers) -> Result<Server, String> {
    if !addresses::are_free(BESIDE) {
        return Err("fewer than 256 MiB of addresses are left (ulimit -v)".to_owned());
    }
    let none = |what, error| format!("there is no {what} for other processes: {error}");
    let server = Server::open().map_err(|error| none("socket", error))?;
    // SAFETY: both handlers are `extern "C"` functions that do not unwind.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
        libc::atexit(stop);
    }
    let thread = background::spawn("gpushim-ipc", 256 << 10, move || serve(answers));
    let thread = thread.inspect_err(|_| server.remove());
    thread.map_err(|error| none("thread", error))?;
    Ok(server)
}

/// Closes the sockets in a forked child, which inherits them without the thread that answers. So
/// the kernel refuses other processes once the parent has ended.
extern "C" fn in_child() {
    if let Some(Ok(server)) = SERVER.get() {
        server.close_in_child();
    }
}

extern "C" fn stop() {
    // The sockets of a forked child belong to its parent.
    if ending::begin(&WORKING)
        && let Some(Ok(server)) = SERVER.get()
    {
        server.remove();
    }
}

/// Answers other processes, on the thread.
fn serve(answers: Answers) {
    let _background = Background::new();
    // The thread that starts this one is about to store the server.
    if let Ok(server) = SERVER.wait() {
        server.run(&answers);
        if !server.listens() && !ending::has_begun() {
            trace::fact("ipc", CLOSED);
        }
    }
}

/// Runs a call of the driver, unless the process ends.
fn at_work<R>(refused: impl Fn() -> R, work: impl FnOnce() -> R) -> R {
    let Ok(_working) = WORKING.lock() else {
        return refused();
    };
    if ending::has_begun() {
        return refused();
    }
    boundary::run(refused, work)
}

impl Service for Answers {
    fn goes_on(&self) -> bool {
        !ending::has_begun() && !is_left_alone()
    }

    fn pieces(&self, request: &Request) -> Result<Reply<OwnedFd>, Refused> {
        at_work(|| Err(Refused::Gone), || (self.pieces)(request))
    }

    fn make_room(&self, room: &Room) -> u64 {
        at_work(|| 0, || (self.make_room)(room))
    }
}
