//! Runs programs and checks the results.

use super::allocator::{Allocator, Handed, Owner};
use super::program::{Action, Setting};
use crate::elastic::{Elastic, PAGE};
use crate::handles::{Context, Stream};
use crate::sim::{Call, Clock, Probe, Sim, World};
use std::sync::Arc;
use std::time::Duration;

mod checks;
mod graphs;

const CONTEXT: Context = Context(1);
const PATIENCE: Duration = Duration::from_secs(1);

/// Physical memory of a range, as the simulation reports it.
type Parts = Vec<(u64, u64, u64)>;

/// The device with its segments.
pub struct Device {
    pub sim: Arc<World>,
    pub elastic: Elastic<Probe>,
    /// True if driver calls fail in this program.
    pub fails: bool,
    /// Numbers of the graphs that exist.
    graphs: Vec<usize>,
}

impl Device {
    pub fn has_graph(&self, number: usize) -> bool {
        self.graphs.contains(&number)
    }
}

/// A tensor, or memory that was not announced.
#[derive(Clone)]
struct Tensor {
    address: u64,
    bytes: u64,
    /// Number of its allocation in the simulation; 0 until it is handed out.
    grant: u64,
    owner: Owner,
    /// Other streams that used it.
    used_on: Vec<usize>,
    parts: Parts,
    is_uncached: bool,
}

/// Memory that captured work uses, and its physical memory at the capture.
#[derive(Clone)]
struct Captured {
    address: u64,
    bytes: u64,
    grant: u64,
    parts: Parts,
    /// Number of its segment at the capture.
    segment: Option<u64>,
    /// True if it is of the graph's own pool.
    is_own: bool,
}

struct Graph {
    number: usize,
    stream: usize,
    uses: Vec<Captured>,
}

struct Machine {
    device: Device,
    allocator: Allocator,
    tensors: Vec<Tensor>,
    graphs: Vec<Graph>,
    capture: Option<Graph>,
    graphs_made: usize,
    others: Vec<u64>,
    /// Segments that are registered outside the process: address, bytes and number.
    exports: Vec<(u64, u64, Option<u64>)>,
    /// Blocks that were handed out without an announcement and are not used yet.
    silent: Vec<Tensor>,
    /// True after an allocation got no memory at all: the program ends.
    is_over: bool,
    /// True after a wrong announcement.
    has_erred: bool,
}

/// Runs a program and returns the errors found. Calls of kind `lie` have no effect.
pub fn run(setting: &Setting, actions: &[Action], lie: Option<Call>) -> Vec<String> {
    let sim = Arc::new(World {
        sim: Sim::new(setting.pages * PAGE, u64::MAX),
        pools: Vec::new(),
    });
    sim.add_context(CONTEXT, 0);
    (0..3).for_each(|n| sim.add_stream(stream(n)));
    sim.fail(setting.fail);
    sim.lie(lie);
    let probe = Probe {
        number: 0,
        world: Arc::downgrade(&sim),
    };
    let mut machine = Machine {
        device: Device {
            elastic: Elastic::new(probe, (0, CONTEXT), setting.mode),
            sim: sim.clone(),
            fails: setting.fail.is_some(),
            graphs: Vec::new(),
        },
        allocator: Allocator::new(setting.expands),
        tensors: Vec::new(),
        graphs: Vec::new(),
        capture: None,
        graphs_made: 0,
        others: Vec::new(),
        exports: Vec::new(),
        silent: Vec::new(),
        is_over: false,
        has_erred: false,
    };
    for action in actions {
        machine.act(setting, action);
        machine.forget_unmapped();
        machine.check();
        if machine.is_over || !sim.findings().is_empty() {
            return sim.findings();
        }
    }
    machine.finish();
    sim.findings()
}

fn stream(n: usize) -> Stream {
    Stream {
        context: CONTEXT,
        handle: 10 + n as u64,
        thread: 0,
    }
}

impl Machine {
    fn act(&mut self, setting: &Setting, action: &Action) {
        let sim = self.device.sim.clone();
        match *action {
            Action::Allocate { stream, bytes } => self.allocate(stream, bytes, false),
            // Only once: a second one would not be noticed, and the first has already stopped
            // sharing.
            Action::Silent { stream, bytes } if setting.errs && !self.has_erred => {
                self.allocate(stream, bytes, true)
            }
            Action::WrongSum if setting.errs => {
                self.allocator.error = 512;
                self.has_erred = true;
            }
            Action::Silent { .. } | Action::WrongSum => {}
            Action::Free { tensor } => self.free(tensor),
            Action::Launch { stream, tensors } => self.launch(stream, &tensors),
            Action::Step { n } => sim.step(n),
            Action::FinishUnseen => sim.finish_unseen(),
            Action::Synchronize => {
                if self.capture.is_none() {
                    sim.synchronized(&sim.of_context(CONTEXT));
                }
            }
            Action::Capture { stream } => self.begin_capture(stream),
            Action::EndCapture => self.end_capture(),
            Action::Replay { graph } => self.replay(graph),
            Action::DestroyGraph { graph } => self.destroy(graph),
            Action::EmptyCache => self.allocator.empty(&self.device),
            // Memory that is held cannot be taken.
            Action::Capacity { pages } => sim.set_capacity(sim.on_device().max(pages * PAGE)),
            Action::Others { pages } => self.others(pages),
            Action::GiveBack { pages, waits } => {
                self.device.elastic.give_back(pages * PAGE, waits, PATIENCE);
            }
            Action::Decay => {
                self.device.elastic.decay();
            }
            Action::GiveComplete { pages } => {
                let before = sim.on_device();
                let elastic = &self.device.elastic;
                let given = elastic.give_complete(pages * PAGE, PATIENCE);
                assert_eq!(
                    given,
                    before - sim.on_device(),
                    "it tells what it gave back"
                );
            }
            Action::Export { tensor } => self.export(tensor),
            Action::Uncached { bytes } => self.uncached(bytes),
        }
    }

    fn allocate(&mut self, on: usize, bytes: u64, is_silent: bool) {
        let owner = match &self.capture {
            Some(capture) if capture.stream == on => Owner::Graph(capture.number),
            _ => Owner::Stream(on),
        };
        let handed = self
            .allocator
            .allocate(&self.device, owner, Some(on as u8), bytes, is_silent);
        let Some(Handed {
            address,
            bytes,
            born,
            admitted,
        }) = handed
        else {
            return;
        };
        let mut tensor = Tensor {
            address,
            bytes,
            grant: 0,
            owner,
            used_on: Vec::new(),
            parts: Vec::new(),
            is_uncached: false,
        };
        let Some(born) = born else {
            self.has_erred = true;
            self.silent.push(tensor);
            return;
        };
        self.announced();
        if born.missing > 0 {
            if !self.device.fails {
                self.device
                    .sim
                    .note("there is no memory at all, though the host has some");
            }
            self.is_over = true;
            return;
        }
        let pages = bytes.div_ceil(PAGE).saturating_sub(admitted);
        let is_known = admitted > 0 && !self.device.fails && !self.has_erred;
        if is_known && u64::from(born.on_host) > pages {
            self.device
                .sim
                .note("a segment was handed out that does not fit");
        }
        self.grant(&mut tensor);
        self.tensors.push(tensor);
    }

    /// Hands a tensor out, so that work may use it.
    fn grant(&self, tensor: &mut Tensor) {
        tensor.grant = self.device.sim.granted(tensor.address, tensor.bytes);
        tensor.parts = self
            .device
            .sim
            .parts(tensor.address, tensor.bytes)
            .unwrap_or_default();
    }

    /// Hands out the blocks that waited for an announcement. Drops them if the device has too little
    /// memory.
    fn announced(&mut self) {
        for mut tensor in std::mem::take(&mut self.silent) {
            if self.device.sim.has_room() && !self.device.fails {
                self.grant(&mut tensor);
                self.tensors.push(tensor);
            }
        }
    }

    fn free(&mut self, which: usize) {
        if self.tensors.is_empty() {
            return;
        }
        let tensor = self.tensors.swap_remove(which % self.tensors.len());
        self.is_intact(&tensor);
        let sim = &self.device.sim;
        sim.returned(tensor.address);
        if tensor.is_uncached {
            sim.unpin(tensor.address, tensor.bytes);
            let freed = self.device.elastic.free(tensor.address, false, |_| ());
            if !matches!(freed, Some(Ok(_))) && !self.device.fails {
                sim.note("memory is not freed");
            }
            return;
        }
        let clocks = tensor.used_on.iter().map(|n| sim.now(stream(*n)));
        let clocks: Vec<Clock> = clocks.collect();
        self.allocator.free(&self.device, tensor.address, clocks);
        self.announced();
    }

    fn launch(&mut self, on: usize, picks: &[usize]) {
        if self.tensors.is_empty() {
            return;
        }
        let mut uses = Vec::new();
        let is_capturing = self
            .capture
            .as_ref()
            .is_some_and(|capture| capture.stream == on);
        for pick in picks {
            let at = pick % self.tensors.len();
            let tensor = self.tensors[at].clone();
            // The program would have to order other streams behind the graph's work.
            let is_foreign = match tensor.owner {
                Owner::Stream(n) => n != on,
                Owner::Graph(n) => !self.is_of(n, on),
            };
            if is_foreign && matches!(tensor.owner, Owner::Graph(_)) || tensor.grant == 0 {
                continue;
            }
            if is_foreign && is_capturing {
                continue;
            }
            if is_foreign && let Owner::Stream(owner) = tensor.owner {
                // A correct program orders the use of another stream's tensor, and tells the
                // allocator.
                let before = self.device.sim.now(stream(owner));
                self.device.sim.order_after(stream(on), &before);
                if !tensor.used_on.contains(&on) {
                    self.tensors[at].used_on.push(on);
                }
            }
            self.is_intact(&tensor);
            uses.push(tensor);
        }
        if is_capturing {
            let captured: Vec<Captured> = uses
                .iter()
                .map(|tensor| Captured {
                    address: tensor.address,
                    bytes: tensor.bytes,
                    grant: tensor.grant,
                    parts: tensor.parts.clone(),
                    segment: self.segment_at(tensor.address),
                    is_own: matches!(tensor.owner, Owner::Graph(_)),
                })
                .collect();
            self.capture
                .iter_mut()
                .for_each(|capture| capture.uses.extend(captured.clone()));
            return;
        }
        let uses: Vec<_> = uses.iter().map(|t| (t.address, t.bytes, t.grant)).collect();
        self.device.sim.launch(stream(on), &uses);
    }

    /// Number of the segment around an address.
    fn segment_at(&self, address: u64) -> Option<u64> {
        self.device.elastic.find(address).map(|found| found.number)
    }

    /// True if a graph was captured on a stream.
    fn is_of(&self, number: usize, on: usize) -> bool {
        let mut all = self.graphs.iter().chain(&self.capture);
        all.any(|graph| graph.number == number && graph.stream == on)
    }

    fn others(&mut self, pages: usize) {
        if pages == 0 {
            self.others
                .drain(..)
                .for_each(|page| self.device.sim.give(page));
        }
        for _ in 0..pages {
            let page = self.device.sim.take().or_else(|| {
                self.device.elastic.give_back(PAGE, true, PATIENCE);
                self.device.sim.take()
            });
            self.others.extend(page);
        }
    }

    fn export(&mut self, which: usize) {
        if self.tensors.is_empty() {
            return;
        }
        let tensor = &self.tensors[which % self.tensors.len()];
        if self.device.elastic.pin(tensor.address) {
            let parts = match self.allocator.segment_of(tensor.address) {
                Some(segment) => segment.parts(true).collect(),
                None => vec![(tensor.address, tensor.bytes)],
            };
            for (base, bytes) in parts {
                self.has_memory(base, bytes);
                self.device.sim.pin(base, bytes);
                self.exports.push((base, bytes, self.segment_at(base)));
            }
        }
    }

    fn uncached(&mut self, bytes: u64) {
        let Some(address) = self.device.elastic.segment(bytes, bytes, false) else {
            return;
        };
        let mut tensor = Tensor {
            address,
            bytes,
            grant: 0,
            owner: Owner::Stream(0),
            used_on: Vec::new(),
            parts: Vec::new(),
            is_uncached: true,
        };
        self.grant(&mut tensor);
        self.tensors.push(tensor);
    }

    /// Frees everything, and checks that nothing is left.
    fn finish(&mut self) {
        self.end_capture();
        while !self.tensors.is_empty() {
            self.free(0);
            if self.is_over {
                return;
            }
        }
        for tensor in std::mem::take(&mut self.silent) {
            self.allocator
                .free(&self.device, tensor.address, Vec::new());
        }
        while !self.graphs.is_empty() {
            self.destroy(0);
        }
        self.device.sim.finish_unseen();
        self.device.sim.fail(None);
        if self.device.fails {
            return;
        }
        self.device.sim.lie(None);
        self.device
            .sim
            .synchronized(&self.device.sim.of_context(CONTEXT));
        self.allocator.empty(&self.device);
        // Segments with blocks that were never announced still exist.
        let left = self.allocator.segments.iter();
        left.for_each(|segment| self.device.sim.unpin(segment.base, segment.bytes));
        self.device.elastic.end();
        let mut ranges = self.allocator.segments.iter();
        if ranges.any(|range| self.device.elastic.has_range(range.base, PAGE)) {
            self.device.sim.note("a range is left at the end");
        }
        let left = (self.device.sim.in_pages(), self.device.sim.events());
        if left != ((0, 0), 0) {
            self.device.sim.note(format!("left at the end: {left:?}"));
        }
    }
}
