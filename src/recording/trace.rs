//! Our own trace files.

use std::hash::Hasher;
use std::path::Path;
use std::rc::Rc;

use rustc_hash::FxHasher;

use super::code::Code;
use super::nodes::Nodes;
use super::{Coverage, Frame, Names, Recording};
use crate::symbols::{Options, Symbolizer};
use gpushim_trace::{Layer, LiveBlock, Record, StackNode, Timeline, Trace};

/// Nodes of a stack beyond which the outer ones are left out. Writers keep 256 frames and 64 ranges; in a hostile
/// file a chain can lead through thousands, for each of a hundred thousand stacks.
const NODES: usize = 512;

impl Recording for Trace {
    fn path(&self) -> &Path {
        Trace::path(self)
    }

    fn format(&self) -> String {
        let header = self.header();
        format!("gpushim trace {}.{}", header.major, header.minor)
    }

    fn wall_ns(&self) -> u64 {
        self.header().wall_ns
    }

    fn facts(&self) -> Vec<(String, String)> {
        Trace::facts(self)
    }

    fn problems(&self) -> Vec<String> {
        let trace = self;
        let mut problems = Trace::problems(trace).to_vec();
        let cut = trace.cut();
        for (count, what) in [
            (trace.facts_cut(), "facts"),
            (cut.strings, "names"),
            (cut.stacks, "stacks, or ranges of them,"),
            (cut.modules, "libraries"),
            (cut.jit, "names of generated code"),
        ] {
            if count > 0 {
                problems.push(format!("{count} {what} did not fit into the file"));
            }
        }
        if let Some(live) = Trace::live(trace) {
            if live.missed > 0 {
                problems.push(format!(
                    "{} blocks found no place in the live table of {}",
                    live.missed, live.capacity
                ));
            }
            problems.extend(live.problems);
        }
        problems
    }

    fn coverage(&self) -> Coverage {
        let trace = self;
        Coverage {
            recorded: trace.recorded(),
            readable: trace.readable(),
            lost: trace.lost(),
            torn: trace.torn(),
            wrapped: trace.has_wrapped(),
        }
    }

    fn events(&self) -> Box<dyn Iterator<Item = Record> + Send + '_> {
        Box::new(Trace::events(self))
    }

    fn live(&self) -> Option<Vec<LiveBlock>> {
        Trace::live(self).map(|table| table.blocks)
    }

    fn live_bytes(&self, layer: Layer, device: u8) -> Option<u64> {
        let sums = self.totals().filter(|_| self.live_missed() > 0)?;
        Some(sums.device(layer, device).live_bytes())
    }

    fn timeline(&self) -> Timeline {
        Trace::timeline(self)
    }

    fn text(&self, id: u64) -> Option<String> {
        self.string(u32::try_from(id).ok()?)
    }

    fn open_ranges(&self, stack: u32) -> Vec<String> {
        let name = |node| match node {
            StackNode::Range { name, .. } => self.string(name),
            StackNode::Frame(_) => None,
        };
        self.stack(stack).take(NODES).filter_map(name).collect()
    }

    fn frames(&self, stack: u32) -> u64 {
        let mut hasher = FxHasher::default();
        let mut frames = 0_u32;
        for node in self.stack(stack).take(NODES) {
            if let StackNode::Frame(address) = node {
                frames += 1;
                hasher.write_u64(address);
            }
        }
        // Not 0 by chance.
        if frames == 0 { 0 } else { hasher.finish() | 1 }
    }

    fn names(&self) -> Box<dyn Names + '_> {
        names_with(self, Options::default())
    }
}

/// As [`Recording::names`] of a trace, with other places where symbols may come from.
pub fn names_with(trace: &Trace, options: Options) -> Box<dyn Names + '_> {
    let symbolizer = Code::of(trace).symbolizer(Trace::path(trace), options);
    Box::new(OurNames {
        trace,
        symbolizer,
        nodes: Nodes::default(),
    })
}

/// Stacks by name. The symbolizer remembers each address; there may be far more stacks.
struct OurNames<'a> {
    trace: &'a Trace,
    symbolizer: Symbolizer,
    nodes: Nodes,
}

impl Names for OurNames<'_> {
    fn stack(&mut self, id: u32) -> Rc<[Frame]> {
        let symbolizer = &mut self.symbolizer;
        let most = self.nodes.most(id);
        let mut frames = 0;
        let of_node = |node| match node {
            StackNode::Frame(_) if frames >= most => None,
            StackNode::Frame(address) => {
                frames += 1;
                Some(Frame::Call(symbolizer.resolve(address)))
            }
            StackNode::Range { name, .. } => {
                let name = self.trace.string(name).unwrap_or_default();
                Some(Frame::Range(name))
            }
        };
        let stack = self
            .trace
            .stack(id)
            .take(NODES)
            .filter_map(of_node)
            .collect();
        self.nodes.took(id, frames);
        stack
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = self.symbolizer.problems().to_vec();
        problems.extend(self.nodes.problem());
        problems
    }
}
