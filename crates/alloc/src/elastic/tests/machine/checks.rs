//! Checks of a program's tensors, segments and exports.

use super::{Machine, Parts, Tensor};
use crate::elastic::tests::allocator::Segment;
use crate::sim::overlap;

impl Machine {
    pub(super) fn is_intact(&self, tensor: &Tensor) {
        let now = self.device.sim.parts(tensor.address, tensor.bytes);
        if now.as_ref() != Ok(&tensor.parts) {
            let what = format!("what was in {:#x} is lost: {now:?}", tensor.address);
            self.device.sim.note(what);
        }
    }

    /// Checks that no tensor at other addresses has any of this memory.
    pub(super) fn is_apart(&self, address: u64, bytes: u64, parts: &Parts) {
        let shares = |tensor: &&Tensor| {
            let mut pairs = tensor
                .parts
                .iter()
                .flat_map(|a| parts.iter().map(move |b| (a, b)));
            pairs.any(|(a, b)| a.0 == b.0 && overlap(a.1, a.2, b.1, b.2))
        };
        let others = self
            .tensors
            .iter()
            .filter(|t| !overlap(t.address, t.bytes, address, bytes));
        if let Some(other) = others.filter(|t| t.grant > 0).find(shares) {
            let what = format!("{:#x} has the memory of {address:#x}", other.address);
            self.device.sim.note(what);
        }
    }

    /// Checks that memory is where it is registered outside the process.
    pub(super) fn has_memory(&self, address: u64, bytes: u64) {
        if let Err(why) = self.device.sim.parts(address, bytes) {
            self.device.sim.note(format!("registered outside: {why}"));
        }
    }

    /// Checks the conditions that hold after each action.
    pub(super) fn check(&self) {
        for tensor in self.tensors.iter().filter(|tensor| tensor.grant > 0) {
            self.is_apart(tensor.address, tensor.bytes, &tensor.parts);
        }
        for (base, bytes, number) in &self.exports {
            if self.segment_at(*base) == *number
                && let Ok(parts) = self.device.sim.parts(*base, *bytes)
            {
                self.is_apart(*base, *bytes, &parts);
            }
        }
        for segment in &self.allocator.segments {
            self.follows(segment);
        }
        let stats = self.device.elastic.stats();
        if (stats.held, stats.on_host) != self.device.sim.in_pages() && !self.device.fails {
            let sim = self.device.sim.in_pages();
            self.device
                .sim
                .note(format!("{stats:?} are told, and held are {sim:?}"));
        }
        let mapped = self.allocator.segments.iter().flat_map(|s| s.parts(true));
        let uncached = self.tensors.iter().filter(|tensor| tensor.is_uncached);
        let uncached = uncached.map(|tensor| tensor.bytes);
        let segments: u64 = mapped.map(|(_, bytes)| bytes).chain(uncached).sum();
        if stats.segments != segments && !self.device.fails {
            let what = format!("{stats:?} are told, and mapped are {segments}");
            self.device.sim.note(what);
        }
        if stats.in_use + stats.spare > stats.held {
            self.device
                .sim
                .note(format!("more is used than held: {stats:?}"));
        }
    }

    /// Checks that the library knows the mapped parts of a segment. All of them have memory if the
    /// segment is registered outside.
    fn follows(&self, segment: &Segment) {
        let all = [true, false].map(|is_mapped| segment.parts(is_mapped));
        for (parts, is_mapped) in all.into_iter().zip([true, false]) {
            for (at, _) in parts.filter(|(at, _)| self.segment_at(*at).is_some() != is_mapped) {
                let what = format!("{at:#x} is mapped: {is_mapped}, and not known");
                self.device.sim.note(what);
            }
        }
        let end = segment.base + segment.bytes;
        let mut exports = self.exports.iter();
        let is_here = |base: &u64| (segment.base..end).contains(base);
        if exports.any(|(base, _, number)| is_here(base) && self.segment_at(*base) == *number) {
            let mapped = segment.parts(true);
            mapped.for_each(|(at, bytes)| self.has_memory(at, bytes));
        }
    }
}
