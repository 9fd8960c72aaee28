//! Actions of a program on whole streams, contexts and devices.

use super::machine::{Block, HOME, Machine, stream};
use crate::handles::Context;
use crate::handles::Stream;
use crate::policy::Policy;

impl Machine {
    pub fn synchronize(&mut self, stream: Stream, whole: bool, meanwhile: usize, fails: bool) {
        let one = (!whole).then_some(stream);
        let alone = self.sim().accessors(stream.context).is_empty();
        let marks: Vec<_> = self
            .world
            .pools
            .iter()
            .map(|p| p.mark(stream.context, one, alone))
            .collect();
        let clock = match one {
            Some(stream) => self.sim().now(stream),
            None => self.sim().of_context(stream.context),
        };
        for n in 0..meanwhile {
            self.launch(stream, &[n]);
            if let Some(block) = self.take(n) {
                self.sim().order_after(stream, &block.after);
                self.free(block, Some(stream));
            }
        }
        if fails {
            return;
        }
        self.sim().synchronized(&clock);
        for (pool, marks) in self.world.pools.iter().zip(&marks) {
            pool.synchronized(marks);
        }
        if self.captures.is_empty() {
            self.each(|pool, probe| {
                if pool.is_above_threshold() {
                    pool.trim_streams(probe, pool.threshold());
                }
            });
        }
    }

    pub fn end_context(&mut self, (context, device): (Context, i32)) {
        if self.setting.policy != Policy::Vmm && context == HOME.context {
            self.end_home();
        }
        // Every other time the pools hear of it before the driver does.
        if self.done.is_multiple_of(2) {
            self.sim().synchronized(&self.sim().of_context(context));
            self.each(|pool, probe| pool.context_leaves(probe, context));
        }
        self.sim().end_context(context);
        while let Some(at) = self
            .captures
            .iter()
            .position(|c| c.stream.context == context)
        {
            self.end_capture(at, false);
        }
        for pool in 0..self.models.len() {
            let given = self.pool(pool).context_gone(&self.probes[pool], context);
            let gone = self.lose(pool, context);
            assert_eq!(given, gone, "bytes that ended with their context");
        }
        self.streams.retain(|stream| stream.context != context);
        self.sim().add_context(context, device);
        self.add_stream(stream(context, Stream::LEGACY));
    }

    /// Forgets the blocks of a pool that are for all streams of a context that ended. Returns their
    /// bytes.
    fn lose(&mut self, pool: usize, context: Context) -> u64 {
        let all = std::mem::take(&mut self.live);
        let of_context =
            |b: &Block| b.pool == pool && b.is_for_all() && b.stream.context == context;
        let (gone, left) = all.into_iter().partition(of_context);
        self.live = left;
        let gone: Vec<Block> = gone;
        for block in &gone {
            self.sim().lost(block.grant.address, block.number);
            self.models[pool].freed(&block.grant);
            self.forget_memory(|number| number == block.number);
        }
        gone.iter().map(|block| block.grant.size).sum()
    }

    /// Ends the context of driver allocations, and with it all memory of the pools.
    fn end_home(&mut self) {
        self.sim().end_allocations();
        for pool in 0..self.models.len() {
            let stats = self.pool(pool).stats();
            let gone = self.pool(pool).home_gone(&self.probes[pool]);
            assert_eq!(gone, (stats.allocated, stats.reserved));
            self.models[pool].abandoned();
        }
        self.live.clear();
        self.forget_memory(|_| true);
    }
}
