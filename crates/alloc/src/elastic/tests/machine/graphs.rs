//! Captures of a program, and the graphs that they end in.

use super::{Captured, Graph, Machine, stream};
use crate::sim::overlap;

impl Machine {
    pub(super) fn begin_capture(&mut self, on: usize) {
        if self.capture.is_some() {
            return;
        }
        self.graphs_made += 1;
        let number = self.graphs_made;
        self.device.elastic.capture_began(1);
        self.device.sim.capture_begin(stream(on));
        self.device.graphs.push(number);
        self.capture = Some(Graph {
            number,
            stream: on,
            uses: Vec::new(),
        });
    }

    pub(super) fn end_capture(&mut self) {
        if let Some(graph) = self.capture.take() {
            self.device.sim.capture_end(stream(graph.stream));
            self.device.elastic.capture_ended(1);
            self.graphs.push(graph);
        }
    }

    /// Forgets that captured work uses memory, or that memory is registered outside, where the
    /// allocator has unmapped it since.
    pub(super) fn forget_unmapped(&mut self) {
        let unmapped = std::mem::take(&mut self.allocator.unmapped);
        let is_there = |used: &Captured| {
            let mut unmapped = unmapped.iter();
            !unmapped.any(|(at, bytes)| overlap(*at, *bytes, used.address, used.bytes))
        };
        for graph in self.graphs.iter_mut().chain(&mut self.capture) {
            graph.uses.retain(is_there);
        }
        for (at, size) in &unmapped {
            let exports = std::mem::take(&mut self.exports).into_iter();
            let rests = exports.flat_map(|(base, bytes, number)| {
                let within = |at: u64| at.clamp(base, base + bytes);
                let (end, next) = (within(*at), within(at + size));
                let after = base + bytes - next;
                [(base, end - base, number), (next, after, number)]
            });
            self.exports = rests.filter(|(_, bytes, _)| *bytes > 0).collect();
        }
    }

    pub(super) fn replay(&mut self, which: usize) {
        if self.graphs.is_empty() || self.capture.is_some() {
            return;
        }
        let graph = &self.graphs[which % self.graphs.len()];
        let mut uses = Vec::new();
        for used in &graph.uses {
            if self.segment_at(used.address) != used.segment {
                continue;
            }
            // A graph may reach memory whose tensor was freed: it must not fault there, nor reach others'.
            self.is_apart(used.address, used.bytes, &used.parts);
            let now = self.device.sim.parts(used.address, used.bytes);
            if now.as_ref() != Ok(&used.parts) {
                let what = format!("memory {:#x} of a graph moved: {now:?}", used.address);
                self.device.sim.note(what);
            }
            if used.is_own || self.tensors.iter().any(|tensor| tensor.grant == used.grant) {
                uses.push((used.address, used.bytes, used.grant));
            }
        }
        self.device.sim.launch(stream(graph.stream), &uses);
    }

    pub(super) fn destroy(&mut self, which: usize) {
        if self.graphs.is_empty() {
            return;
        }
        let graph = self.graphs.swap_remove(which % self.graphs.len());
        self.device.graphs.retain(|number| *number != graph.number);
    }
}
