//! State of the driver behind one lock, and waits for modelled work to complete.

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

/// State of the driver. Each field belongs to one module.
pub struct State {
    /// Work of streams, and its order.
    pub model: Model,
    pub devices: Vec<crate::device::Device>,
    pub contexts: Handles<crate::context::Context>,
    /// Created contexts that are destroyed, to their devices. They can still be current.
    pub gone: std::collections::BTreeMap<u64, i32>,
    /// Streams, including default streams.
    pub streams: Handles<crate::stream::Stream>,
    pub events: Handles<crate::event::Event>,
    /// Memory that the device can reach.
    pub memory: crate::memory::Memory,
    /// Arrays and mipmapped arrays.
    pub arrays: Handles<crate::array::Array>,
    pub modules: Handles<crate::module::Module>,
    pub functions: Handles<crate::module::Function>,
    /// Captures that have begun and not ended.
    pub captures: crate::capture::Captures,
    pub graphs: Handles<crate::graph::Graph>,
    /// Nodes of all graphs, by handle.
    pub nodes: Handles<crate::graph::Node>,
    pub execs: Handles<crate::exec::Exec>,
    pub mempools: crate::mempool::Mempools,
    /// Reserved addresses and the mappings there.
    pub vmm: crate::vmm::Vmm,
    /// Memory shared with other processes.
    pub ipc: crate::ipc::Ipc,
    /// Contexts with access to another context's memory.
    pub peers: crate::peer::Peers,
    /// Allocations whose synchronous copies always synchronise.
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

/// Initialises the driver, once. Fails in a forked child of a process that has done so.
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

/// Locks the state. Fails before `cuInit` and in a forked child.
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

/// The locked state; reports new findings when it is dropped.
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
    /// Waits until work has ended, unlocked meanwhile.
    pub fn wait(&mut self, finish: &Finish) {
        loop {
            let now = now();
            match finish.time() {
                Some(end) if end <= now => return,
                // Too short for a sleep.
                Some(end) if end - now < 50_000 => self.unlocked(std::hint::spin_loop),
                Some(end) => {
                    let most = Duration::from_nanos(end - now - 20_000);
                    CHANGED.wait_for(&mut self.0, most);
                }
                None => CHANGED.wait(&mut self.0),
            }
        }
    }

    /// Waits for a point and records that the host has seen it complete.
    pub fn wait_and_see(&mut self, point: &Point) {
        self.wait(&point.finish);
        self.model.observe(point);
        self.pools_after_wait();
    }

    /// Unlocks the state while `body` runs.
    pub fn unlocked<T>(&mut self, body: impl FnOnce() -> T) -> T {
        MutexGuard::unlocked(&mut self.0, body)
    }
}

/// Wakes waiting threads after a jump of time or the end of a host function.
pub fn wake() {
    CHANGED.notify_all();
}

/// Returns the time of the virtual clock in nanoseconds: real time plus the time that tests have
/// added.
pub fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let real = START.get_or_init(Instant::now).elapsed().as_nanos() as u64;
    real + ADVANCED.load(Ordering::Relaxed)
}

/// Moves the virtual clock forward by `nanos` nanoseconds.
pub fn advance(nanos: u64) {
    ADVANCED.fetch_add(nanos, Ordering::Relaxed);
    // Takes the lock, so that no thread is between its reading of the time and its sleep.
    drop(STATE.lock());
    wake();
}
