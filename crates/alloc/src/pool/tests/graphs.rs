//! Captures and graphs of a program. Memory that they recorded must be there when they run.

use super::machine::{Block, Machine};
use crate::handles::Context;
use crate::handles::Stream;
use crate::sim::{Clock, Use};

/// Use of memory that a graph makes when it runs.
#[derive(Clone)]
struct Recorded {
    used: Use,
    pool: usize,
    made: Stream,
    allocated: Clock,
    /// The context in which the memory was freed. The graph may still run there, and where that
    /// context's memory may be used.
    freed: Option<Context>,
}

/// A capture that has begun and not ended.
pub struct Capture {
    number: u64,
    pub stream: Stream,
    uses: Vec<Recorded>,
}

/// A graph, with the memory that its nodes use.
pub struct Graph {
    id: u64,
    /// Number of the capture that made it.
    capture: u64,
    uses: Vec<Recorded>,
}

impl Capture {
    /// Adds work that uses blocks to the graph.
    pub fn record<'a>(&mut self, blocks: impl Iterator<Item = &'a Block>) {
        self.uses.extend(blocks.map(|block| Recorded {
            used: block.whole(),
            pool: block.pool,
            made: block.stream,
            allocated: block.allocated.clone(),
            freed: None,
        }));
    }
}

impl Machine {
    /// Numbers of the open captures.
    pub fn current(&self) -> Vec<u64> {
        self.captures.iter().map(|open| open.number).collect()
    }

    pub fn capture(&mut self, stream: usize) {
        if self.captures.len() < 2
            && let Some(stream) = self.stream(stream, |_, _| true)
        {
            self.next += 1;
            let number = self.next;
            self.each(|pool, _| pool.capture_began(number));
            self.sim().capture_begin(stream);
            self.captures.push(Capture {
                number,
                stream,
                uses: Vec::new(),
            });
        }
    }

    pub fn end_capture(&mut self, at: usize, graph: bool) {
        let capture = self.captures.swap_remove(at);
        self.sim().capture_end(capture.stream);
        self.next += 1;
        let id = self.next;
        if graph {
            self.graphs.push(Graph {
                id,
                capture: capture.number,
                uses: capture.uses,
            });
        }
        self.each(|pool, _| pool.capture_ended(capture.number, graph.then_some(id)));
    }

    pub fn derive(&mut self, n: usize) {
        if let Some(from) = self.graphs.get(n % self.graphs.len().max(1)) {
            let (from, capture, uses) = (from.id, from.capture, from.uses.clone());
            self.next += 1;
            let id = self.next;
            self.each(|pool, _| pool.graph_derived(from, id));
            self.graphs.push(Graph { id, capture, uses });
        }
    }

    pub fn destroy(&mut self, n: usize) {
        if !self.graphs.is_empty() {
            let graph = self.graphs.swap_remove(n % self.graphs.len());
            self.each(|pool, _| pool.graph_destroyed(graph.id));
        }
    }

    pub fn replay(&mut self, stream: usize, n: usize) {
        let Some(stream) = self.stream(stream, |_, _| true) else {
            return;
        };
        let Some(graph) = self.graphs.get(n % self.graphs.len().max(1)) else {
            return;
        };
        let may = |r: &&Recorded| {
            let covered =
                |c| c == stream.context || self.sim().accessors(c).contains(&stream.context);
            self.reaches(stream, r.pool, r.made) && r.freed.is_none_or(covered)
        };
        let recorded: Vec<&Recorded> = graph.uses.iter().filter(may).collect();
        for r in &recorded {
            self.sim().order_after(stream, &r.allocated);
        }
        let uses: Vec<Use> = recorded.iter().map(|r| r.used).collect();
        self.sim().replay(stream, &uses);
        let now = self.sim().now(stream);
        let in_use = |block: &&mut Block| uses.iter().any(|(_, _, number)| *number == block.number);
        self.live
            .iter_mut()
            .filter(in_use)
            .for_each(|block| block.after.join(&now));
    }

    /// Notes that a block is freed that graphs may use.
    ///
    /// It must be freed during the graph's capture, or have been allocated then. To replay the
    /// graph otherwise is the program's own mistake.
    pub fn leaves_graphs(&mut self, block: &Block, context: Context) {
        let current = self.current();
        let of_block = |r: &Recorded| r.used.2 == block.number;
        for graph in &mut self.graphs {
            if !block.captures.contains(&graph.capture) && !current.contains(&graph.capture) {
                graph.uses.retain(|r| !of_block(r));
            }
        }
        let graphs = self.graphs.iter_mut().map(|graph| &mut graph.uses);
        let captures = self.captures.iter_mut().map(|capture| &mut capture.uses);
        for recorded in graphs.chain(captures).flatten() {
            if of_block(recorded) {
                recorded.freed = Some(context);
            }
        }
    }

    /// Open captures during which the driver would refuse `cudaMalloc` and `cudaFree`: every other
    /// number.
    fn refusing(&self) -> Vec<u64> {
        let open = self.current().into_iter();
        open.filter(|number| number % 2 == 1).collect()
    }

    /// Notes that a block for all streams was handed out. The driver may have refused that during
    /// the open captures.
    pub fn keep(&mut self, block: &Block) {
        let refusing = self.refusing();
        if block.is_for_all() && !refusing.is_empty() {
            self.pool(block.pool)
                .keep(block.grant.address, refusing.clone());
            self.kept.insert(block.number, refusing);
        }
    }

    /// Notes that a block for all streams is about to be freed. The driver may refuse that during
    /// the open captures.
    pub fn keep_freed(&mut self, block: &Block) {
        if block.is_for_all() && !self.refusing().is_empty() {
            self.pool(block.pool).keep_freed(block.grant.address);
            let open = self.current();
            self.kept.entry(block.number).or_insert(open);
        }
    }

    /// Removes freed memory of a pool from all graphs, except memory that the driver would not have
    /// freed.
    pub fn forget_freed(&mut self, pool: usize) {
        let kept = &self.kept;
        let stays = |r: &Recorded, capture: u64| {
            let is_kept = |of: &Vec<u64>| of.contains(&capture);
            r.pool != pool || r.freed.is_none() || kept.get(&r.used.2).is_some_and(is_kept)
        };
        for graph in &mut self.graphs {
            graph.uses.retain(|r| stays(r, graph.capture));
        }
        for capture in &mut self.captures {
            capture.uses.retain(|r| stays(r, capture.number));
        }
    }

    /// Removes memory from all graphs that ended with its device or context.
    pub fn forget_memory(&mut self, gone: impl Fn(u64) -> bool) {
        let graphs = self.graphs.iter_mut().map(|graph| &mut graph.uses);
        let captures = self.captures.iter_mut().map(|capture| &mut capture.uses);
        graphs
            .chain(captures)
            .for_each(|uses| uses.retain(|r| !gone(r.used.2)));
    }
}
