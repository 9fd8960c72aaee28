//! Actions of a program on memory.

use super::machine::{BOTH, Block, HOME, Machine, OF_DEVICE};
use crate::handles::Stream;
use crate::policy::Policy;
use crate::sim::{Clock, Error, Use};
use crate::types::FreeError;

impl Machine {
    pub fn allocate(&mut self, pool: usize, on: Stream, bytes: u64, writes: bool) -> bool {
        let for_all = matches!(pool, OF_DEVICE | BOTH);
        let pool = if pool == BOTH { 0 } else { pool };
        let stream = match (for_all, self.setting.policy) {
            (false, _) => on,
            (true, Policy::Vmm) => Stream::all_of(on.context),
            (true, Policy::Blocks | Policy::Off) => Stream::all_of(HOME.context),
        };
        let grant = match self.pool(pool).allocate(&self.probes[pool], stream, bytes) {
            Ok(grant) => grant,
            Err(error) => {
                self.refused(pool, bytes, error);
                return false;
            }
        };
        assert!(grant.address.is_multiple_of(512));
        assert!(grant.size >= bytes && grant.requested == bytes);
        let number = self.sim().granted(grant.address, grant.size);
        self.models[pool].granted(&grant);
        let allocated = if for_all {
            Clock::default()
        } else {
            self.sim().now(stream)
        };
        let mut block = Block {
            grant,
            pool,
            stream,
            number,
            captures: self.current(),
            after: allocated.clone(),
            allocated,
        };
        if writes {
            self.sim().launch(on, &[block.whole()]);
            block.after.join(&self.sim().now(on));
        }
        self.keep(&block);
        self.live.push(block);
        true
    }

    pub fn take(&mut self, n: usize) -> Option<Block> {
        let live = self.live.len();
        (live > 0).then(|| self.live.swap_remove(n % live))
    }

    pub fn free_block(&mut self, block: usize, on: Option<usize>) {
        let Some(block) = self.live.get(block % self.live.len().max(1)) else {
            return;
        };
        let (number, home) = (block.number, block.stream);
        let stream = match on {
            None => self.stream(0, |_, s| s == home),
            Some(n) => self.stream(n, |_, _| true),
        };
        let Some(stream) = stream.or_else(|| self.stream(0, |_, _| true)) else {
            return;
        };
        let at = self.live.iter().position(|block| block.number == number);
        let Some(block) = at.map(|at| self.live.swap_remove(at)) else {
            return;
        };
        if block.is_for_all() && on.is_none() {
            self.free(block, None);
        } else {
            self.sim().order_after(stream, &block.after);
            self.free(block, Some(stream));
        }
    }

    /// Frees a block on a stream that is ordered after all its use. `None`: where it was allocated.
    pub fn free(&mut self, block: Block, stream: Option<Stream>) {
        self.keep_freed(&block);
        self.sim().returned(block.grant.address);
        self.leaves_graphs(&block, stream.unwrap_or(block.stream).context);
        let mut seen = None;
        let see = |freed: &_| seen = Some(*freed);
        let pool = self.pool(block.pool);
        let result: Result<(), FreeError<Error>> = match stream {
            Some(stream) if stream.is_ordered() => pool.free(stream, block.grant.address, see),
            stream => {
                let current = stream.map(|stream| stream.context);
                let expected = match block.is_for_all() {
                    true => block.stream.context,
                    false => current.expect("a stream's block is freed in some context"),
                };
                pool.free_in_context(block.grant.address, current, see)
                    .map(|context| assert_eq!(context, expected))
            }
        };
        assert!(result.is_ok(), "{result:?}");
        let seen = seen.expect("seen");
        let grant = block.grant;
        assert_eq!(
            (seen.address, seen.requested),
            (grant.address, grant.requested)
        );
        assert_eq!((seen.size, seen.for_all), (grant.size, block.is_for_all()));
        self.models[block.pool].freed(&grant);
        // Every other time the pool finds out by itself that its work is complete.
        if self.done.is_multiple_of(2) && self.pool(block.pool).has_exported() {
            self.pool(block.pool)
                .release_exported(&self.probes[block.pool]);
        }
    }

    pub fn free_twice(&mut self, pool: usize) {
        if let Some(address) = self.models[pool].last_freed
            && !self.live.iter().any(|b| b.grant.address == address)
        {
            let result = self
                .pool(pool)
                .free(self.streams[0], address, |_| -> () { panic!("seen") });
            assert!(matches!(
                result,
                Err(FreeError::NotLive | FreeError::Unknown)
            ));
        }
    }

    pub fn launch(&mut self, stream: Stream, blocks: &[usize]) {
        let mut used: Vec<usize> = Vec::new();
        for block in blocks {
            let block = block % self.live.len().max(1);
            let reachable = |b: &Block| self.reaches(stream, b.pool, b.stream);
            if !used.contains(&block) && self.live.get(block).is_some_and(reachable) {
                used.push(block);
            }
        }
        let capture = self
            .captures
            .iter_mut()
            .find(|capture| capture.stream == stream);
        if let Some(capture) = capture {
            capture.record(used.iter().map(|n| &self.live[*n]));
            return;
        }
        for n in &used {
            self.sim().order_after(stream, &self.live[*n].allocated);
        }
        let uses: Vec<Use> = used.iter().map(|n| self.live[*n].whole()).collect();
        self.sim().launch(stream, &uses);
        let now = self.sim().now(stream);
        for n in used {
            self.live[n].after.join(&now);
        }
    }

    /// True if work of a stream may use a block of a pool that was handed out on another stream.
    pub fn reaches(&self, stream: Stream, pool: usize, made: Stream) -> bool {
        let allowed = || self.models[pool].access == Some(true);
        let accessors = || self.sim().accessors(made.context);
        let peers = || made.is_ordered() || accessors().contains(&stream.context);
        self.device(stream) == 0 || allowed() && peers()
    }

    /// Checks that a refusal of a request is justified.
    fn refused(&mut self, pool: usize, bytes: u64, error: Error) {
        let setting = &self.setting;
        if error != Error::OutOfMemory {
            return self.expect(error);
        }
        self.models[pool].refused += 1;
        if setting.fail.is_none() && bytes < 1 << 40 {
            self.check_refusal(pool, bytes);
        }
    }
}
