//! All state of the driver, behind one lock, and waiting for modelled work to end.

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::codes::{NOT_INITIALIZED, Outcome};
use crate::env::settings;
use crate::finish::Finish;
use crate::handles::Handles;
use crate::model::Model;
use crate::timeline::Point;

/// Everything that the driver knows. One field for each idea; its module owns it.
pub struct State {
    /// Streams' work, and its order.
    pub model: Model,
    /// Devices by ordinal.
    pub devices: Vec<crate::device::Device>,
    /// Contexts.
    pub contexts: Handles<crate::context::Context>,
    /// Created contexts that are destroyed, to their devices: they can still be current.
    pub gone: std::collections::BTreeMap<u64, i32>,
    /// Streams, default streams included.
    pub streams: Handles<crate::stream::Stream>,
    /// Events.
    pub events: Handles<crate::event::Event>,
    /// Memory that the device can reach.
    pub memory: crate::memory::Memory,
    /// Arrays and mipmapped arrays.
    pub arrays: Handles<crate::array::Array>,
    /// Modules and libraries.
    pub modules: Handles<crate::module::Module>,
    /// Functions and kernels.
    pub functions: Handles<crate::module::Function>,
    /// Captures under way.
    pub captures: crate::capture::Captures,
    /// Graphs.
    pub graphs: Handles<crate::graph::Graph>,
    /// Graph nodes, to their graphs.
    pub nodes: Handles<crate::graph::Node>,
    /// Executable graphs.
    pub execs: Handles<crate::exec::Exec>,
    /// Stream-ordered pools.
    pub mempools: crate::mempool::Mempools,
    /// Reserved addresses and what is mapped there.
    pub vmm: crate::vmm::Vmm,
    /// What is shared with other processes.
    pub ipc: crate::ipc::Ipc,
    /// Which context may use which other's memory.
    pub peers: crate::peer::Peers,
    /// Allocations whose copies always synchronise.
    pub sync_memops: crate::pointer::SyncMemops,
    /// Imported memory, to its physical memory.
    pub external: Handles<u64>,
    /// Effects that wait for host functions.
    pub hostfn: crate::hostfn::Pending,
}

static STATE: Mutex<Option<Box<State>>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();
static FORKED: AtomicBool = AtomicBool::new(false);
static ADVANCED: AtomicU64 = AtomicU64::new(0);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Initialises the driver, once. Not in a forked child of a process that has done so.
pub fn initialize() -> Outcome {
    if FORKED.load(Ordering::Relaxed) {
        return Err(NOT_INITIALIZED);
    }
    let mut state = STATE.lock();
    if state.is_none() {
        *state = Some(Box::new(State {
            model: Model::default(),
            devices: crate::device::all(settings()),
            contexts: Handles::new(0x51),
            gone: Default::default(),
            streams: Handles::new(0x52),
            events: Handles::new(0x53),
            memory: Default::default(),
            arrays: Handles::new(0x54),
            modules: Handles::new(0x55),
            functions: Handles::new(0x56),
            captures: Default::default(),
            graphs: Handles::new(0x57),
            nodes: Handles::new(0x58),
            execs: Handles::new(0x59),
            mempools: Default::default(),
            vmm: Default::default(),
            ipc: Default::default(),
            peers: Default::default(),
            sync_memops: Default::default(),
            external: Handles::new(0x5c),
            hostfn: Default::default(),
        }));
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
    Ok(())
}

/// The state, locked. An error before `cuInit` and in a forked child.
pub fn lock() -> Outcome<Guard> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(NOT_INITIALIZED);
    }
    let state = STATE.lock();
    match state.is_some() {
        true => Ok(Guard(state)),
        false => Err(NOT_INITIALIZED),
    }
}

/// The locked state.
pub struct Guard(MutexGuard<'static, Option<Box<State>>>);

impl Deref for Guard {
    type Target = State;
    fn deref(&self) -> &State {
        self.0
            .as_ref()
            .expect("only an initialised state is locked")
    }
}

impl DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut State {
        self.0
            .as_mut()
            .expect("only an initialised state is locked")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.model.has_findings() {
            let findings = self.model.take_findings();
            crate::report::report(&findings);
        }
    }
}

impl Guard {
    /// Waits, unlocked meanwhile, until work has ended.
    pub fn wait(&mut self, finish: &Finish) {
        loop {
            let now = now();
            match finish.time() {
                Some(end) if end <= now => return,
                // Too short to sleep for.
                Some(end) if end - now < 50_000 => self.unlocked(std::hint::spin_loop),
                Some(end) => {
                    let most = Duration::from_nanos(end - now - 20_000);
                    CHANGED.wait_for(&mut self.0, most);
                }
                None => CHANGED.wait(&mut self.0),
            }
        }
    }

    /// Waits for a point, and so has the host see it.
    pub fn wait_and_see(&mut self, point: &Point) {
        self.wait(&point.finish);
        self.model.observe(point);
        self.pools_after_wait();
    }

    /// Gives the lock up for a moment and takes it again after `body`.
    pub fn unlocked<T>(&mut self, body: impl FnOnce() -> T) -> T {
        MutexGuard::unlocked(&mut self.0, body)
    }
}

/// Wakes waiting threads: time has jumped or a host function has run.
pub fn wake() {
    CHANGED.notify_all();
}

/// Nanoseconds of the virtual clock: real time, plus what tests have added.
pub fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let real = START.get_or_init(Instant::now).elapsed().as_nanos() as u64;
    real + ADVANCED.load(Ordering::Relaxed)
}

/// Moves the virtual clock forward.
pub fn advance(nanos: u64) {
    ADVANCED.fetch_add(nanos, Ordering::Relaxed);
    // Under the lock, so that no thread is between reading the time and going to sleep.
    drop(STATE.lock());
    wake();
}
