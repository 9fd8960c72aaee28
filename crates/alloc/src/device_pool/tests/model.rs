//! What the pool's figures must be while a program runs, and at its end.

use super::machine::Machine;

impl Machine {
    pub fn sums(&self, device: i32) -> (u64, u64) {
        let on = self
            .live
            .iter()
            .filter(|b| self.contexts[b.context].1 == device);
        on.fold((0, 0), |(a, r), b| {
            (a + b.grant.size, r + b.grant.requested)
        })
    }

    pub fn check(&self) {
        for device in 0..3 {
            let stats = self.pool.stats(Some(device));
            let held = self.sim().held(device);
            assert_eq!(stats.reserved, held, "reserved on {device}");
            assert_eq!((stats.allocated, stats.requested), self.sums(device));
            assert_eq!(stats.cached(), held - stats.allocated);
            assert!(stats.quarantined <= stats.cached());
            let peaks = self.peaks.get(&device).copied().unwrap_or_default();
            assert_eq!((stats.peak_allocated, stats.peak_requested), peaks);
            assert_eq!(stats.peak_reserved, self.sim().peak(device));
            assert_eq!(
                stats.live as usize,
                self.live
                    .iter()
                    .filter(|b| self.contexts[b.context].1 == device)
                    .count()
            );
            // Blocks in quarantine, or freed under a capture, cannot shrink.
            if let Some(max) = self.setting.cache_max
                && self.captures.is_empty()
                && self.graphs.is_empty()
                && self.setting.fail.is_none()
            {
                assert!(
                    stats.cached() <= max,
                    "cache {} beyond {max}",
                    stats.cached()
                );
            }
        }
        for block in &self.live {
            let inside = block.grant.address + block.grant.requested - 1;
            assert_eq!(
                self.pool.find(inside),
                Some((block.grant.address, block.grant.requested))
            );
        }
    }

    /// Everything is given back in the end.
    pub fn end(mut self) -> Vec<String> {
        while !self.captures.is_empty() {
            self.end_capture(0, false);
        }
        for graph in std::mem::take(&mut self.graphs) {
            self.pool.graph_destroyed(graph.id);
        }
        for block in std::mem::take(&mut self.live) {
            self.free(block);
        }
        self.pool.trim(None, 0);
        if self.setting.fail.is_none() {
            let stats = self.pool.stats(None);
            assert_eq!(
                (stats.reserved, stats.allocated, stats.quarantined),
                (0, 0, 0)
            );
            self.sim().finish_unseen();
            (0..3).for_each(|_| {
                self.pool.decay();
            });
            assert_eq!(self.sim().events(), 0, "events are kept");
        }
        self.sim().findings()
    }
}
