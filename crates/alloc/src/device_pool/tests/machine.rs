//! A program on its way.

use super::probe::Probe;
use super::program::{Action, MIB, Setting};
use crate::device_pool::{Device, DevicePool, Settings};
use crate::handles::{Address, Context};
use crate::sim::{Call, DeviceSim, Error, Use};
use crate::types::{FreeError, Grant};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub struct Block {
    pub grant: Grant,
    pub context: usize,
    pub number: u64,
    /// The captures that were open when it was handed out.
    pub captures: Vec<u64>,
    /// Those because of which the driver would have refused to hand it out.
    pub refused: Vec<u64>,
}

/// A capture that is open.
pub struct Capture {
    pub id: u64,
    pub context: usize,
    pub refuses: bool,
    /// It cannot end in a graph any more.
    pub is_broken: bool,
    pub recorded: BTreeSet<(usize, Use)>,
}

/// A block that was freed where the driver would have refused that, or would not have handed it out.
pub struct Kept {
    pub device: i32,
    pub bytes: u64,
    pub number: u64,
    /// The captures that it waits for, however short memory is.
    pub captures: Vec<u64>,
}

/// A graph: the memory that its nodes use.
pub struct Graph {
    pub id: u64,
    /// The capture that it came from.
    pub capture: u64,
    pub uses: BTreeSet<(usize, Use)>,
}

/// A program on its way, and a naive model of what the pool should hold.
pub struct Machine {
    pub pool: Arc<DevicePool<Probe>>,
    pub setting: Setting,
    pub contexts: Vec<(Context, i32)>,
    pub live: Vec<Block>,
    pub freed: Option<Address>,
    pub peers: BTreeSet<(usize, usize)>,
    /// As `peers`, of access that was taken away: work that was submitted before may still be running.
    pub former_peers: BTreeSet<(usize, usize)>,
    pub captures: Vec<Capture>,
    pub graphs: Vec<Graph>,
    /// Freed where the driver would have done so too: when memory is short, graphs lose them.
    pub loose: BTreeSet<u64>,
    /// Freed where the driver would have refused the free or the allocation.
    pub kept: Vec<Kept>,
    /// A context is being destroyed: what is cached there cannot be given back.
    is_ending: bool,
    pub next: u64,
    pub peaks: BTreeMap<i32, (u64, u64)>,
}

/// Runs a program and tells what the device found.
///
/// # Panics
/// If the pool's own figures or answers are wrong.
pub fn run(setting: &Setting, actions: &[Action], lie: Option<Call>) -> Vec<String> {
    let mut sim = DeviceSim::new(setting.capacity);
    if !setting.events {
        sim = sim.without_events();
    }
    if let Some((call, every)) = setting.fail {
        sim.fail(call, every);
    }
    if let Some(call) = lie {
        sim.lie(call);
    }
    let settings = Settings {
        reuse: setting.reuse,
        cache_max: setting.cache_max,
        margin: Some(setting.margin),
        share: setting.share,
        floor: 0,
        ..Settings::default()
    };
    let pool = Probe::pool(sim, settings);
    // Two contexts share a device; handles of contexts 2 and 3 are on devices of their own.
    let contexts = vec![
        (Context(1), 0),
        (Context(2), 0),
        (Context(3), 1),
        (Context(4), 2),
    ];
    for (context, device) in &contexts {
        pool.device().sim.add_context(*context, *device);
    }
    // Work of either context of this device may use its memory, so the pool must know both.
    pool.context_known(Context(1));
    pool.context_known(Context(2));
    let mut machine = Machine {
        pool,
        setting: setting.clone(),
        contexts,
        live: Vec::new(),
        freed: None,
        peers: BTreeSet::new(),
        former_peers: BTreeSet::new(),
        captures: Vec::new(),
        graphs: Vec::new(),
        loose: BTreeSet::new(),
        kept: Vec::new(),
        is_ending: false,
        next: 100,
        peaks: BTreeMap::new(),
    };
    for action in actions {
        machine.act(action);
        if !machine.sim().findings().is_empty() {
            return machine.sim().findings();
        }
        machine.check();
    }
    machine.end()
}

impl Machine {
    pub fn sim(&self) -> &DeviceSim {
        &self.pool.device().sim
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::Allocate {
                context,
                bytes,
                ready_only,
            } => self.allocate(context, bytes, ready_only),
            Action::Free { block } => {
                if !self.live.is_empty() {
                    let block = self.live.swap_remove(block % self.live.len());
                    self.free(block);
                }
            }
            Action::FreeTwice => {
                if let Some(address) = self.freed
                    && !self.live.iter().any(|b| b.grant.address == address)
                {
                    let result = self.pool.free(address, |_| -> () { panic!("seen") });
                    assert!(matches!(
                        result,
                        Err(FreeError::NotLive | FreeError::Unknown)
                    ));
                }
            }
            Action::Launch { context, blocks } => self.launch(context, blocks),
            Action::Finish { work } => self.sim().finish(work),
            Action::Synchronize { context, after } => {
                if self.captures.is_empty() {
                    let (context, _) = self.contexts[context];
                    let mark = self.pool.mark(context);
                    if self.setting.fail.is_none() && self.sim().synchronize(context).is_ok() {
                        // What is used and freed in the meantime is not covered.
                        for n in 0..after {
                            self.launch(n, [n, n]);
                            self.act(&Action::Free { block: n });
                        }
                        self.pool.synchronized(context, mark);
                    }
                }
            }
            Action::Peer {
                accessor,
                owner,
                on,
            } if accessor != owner => {
                if on && self.peers.insert((accessor, owner)) {
                    self.pool
                        .peer_enabled(self.contexts[accessor].0, self.contexts[owner].0);
                } else if !on && self.peers.remove(&(accessor, owner)) {
                    self.former_peers.insert((accessor, owner));
                    self.pool
                        .peer_disabled(self.contexts[accessor].0, self.contexts[owner].0);
                }
            }
            Action::Peer { .. } => {}
            Action::Capture { context, refuses } => {
                self.next += 1;
                self.pool.capture_began(self.next);
                let refuses_as = refuses.then_some(self.next);
                self.sim()
                    .capture_begin(self.contexts[context].0, refuses_as);
                self.captures.push(Capture {
                    id: self.next,
                    context,
                    refuses,
                    is_broken: false,
                    recorded: BTreeSet::new(),
                });
            }
            Action::BreakCapture { capture } => {
                if !self.captures.is_empty() {
                    let at = capture % self.captures.len();
                    let capture = &mut self.captures[at];
                    capture.is_broken = true;
                    capture.recorded.clear();
                    self.pool.capture_broken(capture.id);
                }
            }
            Action::EndCapture { capture, graph } => {
                if !self.captures.is_empty() {
                    self.end_capture(capture % self.captures.len(), graph);
                }
            }
            Action::Derive { graph } => {
                if !self.graphs.is_empty() {
                    let from = &self.graphs[graph % self.graphs.len()];
                    self.next += 1;
                    let to = Graph {
                        id: self.next,
                        capture: from.capture,
                        uses: from.uses.clone(),
                    };
                    self.pool.graph_derived(from.id, to.id);
                    self.graphs.push(to);
                }
            }
            Action::Destroy { graph } => {
                if !self.graphs.is_empty() {
                    let graph = self.graphs.swap_remove(graph % self.graphs.len());
                    self.pool.graph_destroyed(graph.id);
                }
            }
            Action::Replay { context, graph } => {
                let context = context % self.contexts.len();
                if let Some(graph) = self.graphs.get(graph) {
                    let reach = |(owner, _): &&(usize, Use)| self.reaches(context, *owner);
                    let uses: Vec<Use> = graph.uses.iter().filter(reach).map(|(_, u)| *u).collect();
                    self.sim().replay(self.contexts[context].0, &uses);
                }
            }
            Action::Export { block } => {
                if !self.live.is_empty() {
                    let block = &self.live[block % self.live.len()];
                    self.pool
                        .exported(block.grant.address + block.grant.requested / 2);
                }
            }
            Action::Trim { device, keep } => {
                let before: u64 = (0..3).map(|d| self.sim().held(d)).sum();
                let given = self.pool.trim(device, keep);
                let after: u64 = (0..3).map(|d| self.sim().held(d)).sum();
                assert_eq!(given, before - after, "trim tells what it gave back");
            }
            Action::Decay => {
                self.pool.decay();
            }
            Action::GiveComplete { device } => {
                let before = self.sim().held(device);
                let given = self.pool.give_complete(device);
                let after = self.sim().held(device);
                assert_eq!(given, before - after, "it tells what it gave back");
            }
            Action::Reset { context } => self.reset(context),
        }
    }

    fn current(&self) -> Vec<u64> {
        self.captures.iter().map(|capture| capture.id).collect()
    }

    /// The captures because of which the driver would refuse allocations and frees.
    fn refusing(&self) -> Vec<u64> {
        let refusing = self.captures.iter().filter(|capture| capture.refuses);
        refusing.map(|capture| capture.id).collect()
    }

    /// Whether a capture and all graphs of it are gone, or will never be.
    fn is_over(&self, capture: u64) -> bool {
        let is_it = |open: &Capture| open.id == capture && !open.is_broken;
        let is_open = self.captures.iter().any(is_it);
        !is_open && self.graphs.iter().all(|graph| graph.capture != capture)
    }

    fn waits(&self, kept: &Kept) -> bool {
        kept.captures.iter().any(|capture| !self.is_over(*capture))
    }

    /// Memory was short: what the driver would have freed does not wait for graphs any more.
    fn give_up(&mut self) {
        let over = self.kept.iter().filter(|kept| !self.waits(kept));
        let over: Vec<u64> = over.map(|kept| kept.number).collect();
        self.loose.extend(over);
        let loose = &self.loose;
        let gone = |(_, (_, _, number)): &(usize, Use)| loose.contains(number);
        let graphs = self.graphs.iter_mut().map(|graph| &mut graph.uses);
        let open = self.captures.iter_mut().map(|open| &mut open.recorded);
        graphs
            .chain(open)
            .for_each(|uses| uses.retain(|used| !gone(used)));
    }

    fn allocate(&mut self, context: usize, bytes: u64, ready_only: bool) {
        let (handle, device) = self.contexts[context];
        let given_up = self.pool.stats(None).given_up;
        let result = if ready_only && bytes.is_multiple_of(2) {
            self.pool.try_allocate(handle, bytes)
        } else {
            match self.pool.allocate(handle, bytes) {
                Ok(grant) => Some(grant),
                Err(error) => {
                    assert_eq!(error, Error::OutOfMemory);
                    self.check_refusal(device, bytes);
                    None
                }
            }
        };
        if self.pool.stats(None).given_up > given_up {
            self.give_up();
        }
        let Some(grant) = result else { return };
        assert!(
            grant.address.is_multiple_of(512) && grant.size >= bytes && grant.requested == bytes
        );
        let number = self.sim().granted(grant.address, grant.size);
        self.live.push(Block {
            grant,
            context,
            number,
            captures: self.current(),
            refused: self.refusing(),
        });
        let (allocated, requested) = self.sums(device);
        let peaks = self.peaks.entry(device).or_default();
        *peaks = (peaks.0.max(allocated), peaks.1.max(requested));
        // What is handed out is written.
        if self.captures.is_empty() {
            self.sim()
                .launch(handle, &[(grant.address, grant.size, number)]);
        }
    }

    /// A refusal is honest: nothing that could have been given back is kept.
    fn check_refusal(&self, device: i32, bytes: u64) {
        if self.setting.fail.is_some() || self.is_ending {
            return;
        }
        let stats = self.pool.stats(Some(device));
        let waits = |kept: &&Kept| kept.device == device && self.waits(kept);
        let kept: u64 = self.kept.iter().filter(waits).map(|kept| kept.bytes).sum();
        assert!(stats.quarantined <= kept, "out of memory with a quarantine");
        // Under a capture, other contexts' work cannot always be waited for.
        let neighbours = device == 0
            || self
                .peers
                .iter()
                .any(|(_, o)| self.contexts[*o].1 == device);
        if !self.captures.is_empty() && neighbours {
            return;
        }
        // Nor can a former peer's, while it captures itself.
        let is_capturing =
            |context: usize| self.captures.iter().any(|open| open.context == context);
        let is_unreachable = |(accessor, owner): &(usize, usize)| {
            self.contexts[*owner].1 == device && is_capturing(*accessor)
        };
        if self.former_peers.iter().any(is_unreachable) {
            return;
        }
        assert_eq!(
            stats.cached(),
            stats.quarantined,
            "out of memory with a cache"
        );
        assert!(
            stats.reserved + bytes.next_multiple_of(2 * MIB) > self.setting.capacity,
            "there was room"
        );
    }

    pub fn free(&mut self, block: Block) {
        self.sim().returned(block.grant.address);
        // What a graph uses must be freed during its capture, or have been allocated then.
        // To replay it otherwise is the program's own mistake.
        let current = self.current();
        for graph in &mut self.graphs {
            if !block.captures.contains(&graph.capture) && !current.contains(&graph.capture) {
                graph
                    .uses
                    .retain(|(_, (_, _, number))| *number != block.number);
            }
        }
        let mut seen = None;
        let result = self
            .pool
            .free(block.grant.address, |freed| seen = Some(*freed));
        let seen = seen.expect("seen");
        assert_eq!(
            (seen.requested, seen.size),
            (block.grant.requested, block.grant.size)
        );
        assert_eq!(seen.device, self.contexts[block.context].1);
        let captures = match block.refused.is_empty() {
            true if self.refusing().is_empty() => Vec::new(),
            true => current,
            false => block.refused.clone(),
        };
        if !captures.is_empty() {
            let (_, device) = self.contexts[block.context];
            self.kept.push(Kept {
                device,
                bytes: block.grant.size,
                number: block.number,
                captures,
            });
        } else {
            self.loose.insert(block.number);
        }
        match result {
            Ok(()) => self.freed = Some(block.grant.address),
            Err(FreeError::Driver(Error::Failed)) => assert!(self.setting.fail.is_some()),
            Err(error) => panic!("{error}"),
        }
    }

    fn reaches(&self, context: usize, owner: usize) -> bool {
        let near = self.contexts[context].1 == self.contexts[owner].1;
        near || self.peers.contains(&(context, owner))
    }

    fn launch(&mut self, context: usize, blocks: [usize; 2]) {
        let mut uses = Vec::new();
        for block in blocks {
            let Some(block) = self.live.get(block % self.live.len().max(1)) else {
                return;
            };
            if self.reaches(context, block.context) {
                uses.push((
                    block.context,
                    (block.grant.address, block.grant.size, block.number),
                ));
            }
        }
        for capture in self.captures.iter_mut().filter(|open| !open.is_broken) {
            capture.recorded.extend(uses.iter().copied());
        }
        if self.captures.is_empty() {
            let uses: Vec<Use> = uses.into_iter().map(|(_, u)| u).collect();
            self.sim().launch(self.contexts[context].0, &uses);
        }
    }

    pub fn end_capture(&mut self, at: usize, graph: bool) {
        let capture = self.captures.swap_remove(at);
        self.sim().capture_end(at);
        self.next += 1;
        let id = self.next;
        let graph = graph && !capture.is_broken;
        if graph {
            self.graphs.push(Graph {
                id,
                capture: capture.id,
                uses: capture.recorded,
            });
        }
        self.pool.capture_ended(capture.id, graph.then_some(id));
    }

    /// Others allocate and free while the driver destroys a context.
    fn end_slowly(&mut self, context: usize) {
        let handle = self.contexts[context].0;
        self.sim().close_context(handle);
        self.pool.context_leaves(handle);
        self.is_ending = true;
        for other in (0..self.contexts.len()).filter(|other| *other != context) {
            let before = self.live.len();
            self.allocate(other, MIB, false);
            if self.live.len() > before
                && let Some(block) = self.live.pop()
            {
                self.free(block);
            }
        }
        self.is_ending = false;
    }

    fn reset(&mut self, context: usize) {
        let (handle, device) = self.contexts[context];
        while let Some(at) = self.captures.iter().position(|c| c.context == context) {
            self.end_capture(at, false);
        }
        self.end_slowly(context);
        self.live.retain(|block| block.context != context);
        let graphs = self.graphs.iter_mut().map(|graph| &mut graph.uses);
        let open = self.captures.iter_mut().map(|open| &mut open.recorded);
        graphs
            .chain(open)
            .for_each(|uses| uses.retain(|(owner, _)| *owner != context));
        for peers in [&mut self.peers, &mut self.former_peers] {
            peers.retain(|(a, o)| *a != context && *o != context);
        }
        self.freed = None;
        self.sim().destroy_context(handle);
        self.pool.context_gone(handle);
        self.sim().add_context(handle, device);
        self.pool.context_known(handle);
    }
}
