//! Naive count of the figures that a pool should report.

use super::machine::{Machine, OF_DEVICE};
use super::program::{Ending, MIB};
use crate::policy::Policy;
use crate::policy::TICKS_TO_DECAY;
use crate::pool::Pool;
use crate::pool::block::{NIL, State as Is};
use crate::sim::{Call, Probe};
use crate::size_class::page_bytes;
use crate::types::Grant;

/// Operations between two comparisons of all blocks and pieces.
const EVERY: u64 = 8;
/// Operations between two comparisons of figures, if there are thread caches.
const UNSEEN: u64 = 24;

/// Figures that one pool should report.
pub struct Model {
    pub max_size: u64,
    granted: u64,
    pub refused: u64,
    freed: u64,
    freed_bytes: u64,
    requested: u64,
    allocated: u64,
    live: u64,
    peak_requested: u64,
    peak_allocated: u64,
    /// Most bytes held that were seen between operations.
    seen_reserved: u64,
    /// True if the other device may use its memory. `None`: it is not known.
    pub access: Option<bool>,
    pub last_freed: Option<u64>,
    /// True if pieces ended with their device.
    lost: bool,
    /// Number of blocks that graphs held and that were freed because memory was short.
    given_up: u64,
}

impl Model {
    pub fn new(max_size: u64) -> Self {
        Model {
            max_size,
            granted: 0,
            refused: 0,
            freed: 0,
            freed_bytes: 0,
            requested: 0,
            allocated: 0,
            live: 0,
            peak_requested: 0,
            peak_allocated: 0,
            seen_reserved: 0,
            access: Some(false),
            last_freed: None,
            lost: false,
            given_up: 0,
        }
    }

    pub fn granted(&mut self, grant: &Grant) {
        self.granted += 1;
        self.live += 1;
        self.requested += grant.requested;
        self.allocated += grant.size;
        self.peak_requested = self.peak_requested.max(self.requested);
        self.peak_allocated = self.peak_allocated.max(self.allocated);
    }

    pub fn freed(&mut self, grant: &Grant) {
        self.freed += 1;
        self.freed_bytes += grant.size;
        self.live -= 1;
        self.requested -= grant.requested;
        self.allocated -= grant.size;
        self.last_freed = Some(grant.address);
    }

    pub fn peaks_reset(&mut self) {
        self.peak_requested = self.requested;
        self.seen_reserved = 0;
    }

    pub fn abandoned(&mut self) {
        (self.live, self.requested, self.allocated) = (0, 0, 0);
        self.last_freed = None;
        self.lost = true;
    }
}

/// Sums and blocks found in a pool.
struct Audit {
    live: u64,
    free: u64,
    quarantined: u64,
    pieces: u64,
    /// Address ranges of blocks that are handed out, or kept for captures.
    taken: Vec<(u64, u64)>,
}

/// Checks every block of a pool.
///
/// # Panics
/// If they contradict each other.
fn audit(pool: &Pool<Probe>, pages: bool) -> Audit {
    let mut state = pool.state.lock();
    let state = &mut *state;
    let mut found = Audit {
        live: 0,
        free: 0,
        quarantined: 0,
        pieces: state.space.pieces.len() as u64,
        taken: Vec::new(),
    };
    let mut free = 0;
    let blocks: Vec<_> = state.map.iter().map(|(at, id)| (*at, *id)).collect();
    for (address, id) in blocks {
        let block = state.slab.at(id).clone();
        assert_eq!(block.address, address);
        if block.right != NIL {
            let right = state.slab.at(block.right);
            assert_eq!(
                (right.left, right.address),
                (id, block.end()),
                "adjacent blocks"
            );
        }
        let pieces = || state.space.pieces.range(..block.end()).rev();
        let touching = || pieces().take_while(|(at, piece)| *at + piece.bytes > block.address);
        let mapped: u64 = touching()
            .map(|(at, piece)| (at + piece.bytes).min(block.end()) - at.max(&block.address))
            .sum();
        let has_memory = !matches!(block.state, Is::Unmapped | Is::Stale);
        if pages || has_memory {
            let expected = if has_memory { block.size } else { 0 };
            assert_eq!(mapped, expected, "memory of {block:?}");
        }
        match block.state {
            Is::Live => found.live += block.size,
            Is::Quarantined => found.quarantined += block.size,
            Is::Free | Is::Unmerged => found.free += block.size,
            Is::Unmapped | Is::Stale => {}
            Is::InThreadCache => panic!("it is not called in: {block:?}"),
            Is::Busy if state.exported.contains(&id) => found.free += block.size,
            Is::Busy => panic!("a busy block while no thread works: {block:?}"),
        }
        free += usize::from(block.state == Is::Free);
        // Blocks kept for captures are not free either, however short memory is.
        let is_kept = block.state == Is::Quarantined && state.captures.is_kept(id);
        if block.state == Is::Live || is_kept {
            found.taken.push((block.address, block.end()));
        }
    }
    let mut listed = 0;
    for number in state.queues.numbers() {
        for small in [false, true] {
            let ids = state.free_of(number, small, 0);
            let own = |id: &&u32| {
                let block = state.slab.at(**id);
                (block.state, block.queue, block.small) == (Is::Free, number, small)
            };
            listed += ids.iter().filter(own).count();
        }
    }
    assert_eq!(listed, free, "free blocks and their bins");
    found
}

impl Machine {
    /// Compares the figures of the pools with the model.
    pub fn check(&mut self) {
        for number in 0..self.models.len() {
            let given_up = self.pool(number).given_up();
            if std::mem::replace(&mut self.models[number].given_up, given_up) != given_up {
                // Natively these blocks were free: to run such a graph again is the program's own
                // mistake.
                self.forget_freed(number);
            }
        }
        // Reading the figures flushes the thread caches.
        if self.setting.threads > 0 && !self.done.is_multiple_of(UNSEEN) {
            return;
        }
        for number in 0..self.models.len() {
            let stats = self.pool(number).stats();
            let largest_free = self.pool(number).largest_free();
            let (held, peak) = self.sim().held(number);
            let model = &mut self.models[number];
            assert_eq!(stats.reserved, held, "reserved");
            assert_eq!(
                (stats.allocated, stats.requested),
                (model.allocated, model.requested)
            );
            assert_eq!((stats.live, stats.freed), (model.live, model.freed));
            assert_eq!(stats.freed_bytes, model.freed_bytes);
            assert_eq!(
                stats.hits + stats.ordered + stats.waited + stats.grown,
                model.granted
            );
            assert_eq!(stats.out_of_memory, model.refused);
            let peaks = (stats.peak_allocated, stats.peak_requested);
            if self.setting.threads <= 1 {
                assert_eq!(peaks, (model.peak_allocated, model.peak_requested));
            }
            assert!(stats.peak_allocated >= stats.allocated);
            // The part of streams, as a pool's attributes report it.
            let (used, reserved) = (stats.requested_on_streams(), stats.reserved_on_streams());
            assert!(used <= reserved && reserved <= held.next_multiple_of(2 * MIB));
            assert!(stats.peak_requested_on_streams() >= used);
            assert!(stats.peak_reserved_on_streams() >= reserved);
            model.seen_reserved = model.seen_reserved.max(held);
            assert!((model.seen_reserved..=peak).contains(&stats.peak_reserved));
            assert!(stats.allocated + stats.quarantined + largest_free <= stats.reserved);
            if model.max_size != 0 {
                assert!(stats.reserved <= model.max_size, "beyond the pool's size");
            }
        }
        assert!(self.sim().total() <= self.setting.limit, "beyond the limit");
        if self.done.is_multiple_of(EVERY) {
            self.look();
        }
    }

    /// Compares every block and every piece.
    fn look(&self) {
        for (number, model) in self.models.iter().enumerate() {
            let pool = self.pool(number);
            let found = audit(pool, self.setting.policy == Policy::Vmm);
            let stats = pool.stats();
            assert_eq!(
                (stats.allocated, stats.quarantined),
                (found.live, found.quarantined)
            );
            assert_eq!(stats.reserved, found.live + found.quarantined + found.free);
            if !model.lost {
                assert_eq!(stats.created - stats.released, found.pieces);
            }
            if self.setting.fail.is_none() {
                assert_eq!(stats.moved + stats.aliased, self.sim().moves(number));
                // Waits that a stream could have made are counted elsewhere.
                let calls = [Call::Wait, Call::Drain].map(|call| self.sim().calls(number, call));
                assert!(stats.host_waits <= calls.into_iter().sum());
                if let Some(access) = model.access
                    && self.setting.policy == Policy::Vmm
                {
                    let want = if access { 3 } else { 1 };
                    assert!(self.sim().is_accessible(number, want), "access rights");
                }
            }
        }
        for block in &self.live {
            let inside = block.grant.address + block.grant.requested - 1;
            let found = self
                .pool(block.pool)
                .find(inside)
                .map(|found| (found.address, found.requested));
            assert_eq!(found, Some((block.grant.address, block.grant.requested)));
        }
    }

    /// Checks a refusal for lack of memory: the free memory could not have served the request.
    pub fn check_refusal(&self, pool: usize, bytes: u64) {
        let pages = self.setting.policy == Policy::Vmm;
        let busy: Vec<u64> = (0..self.models.len())
            .map(|number| {
                let taken = audit(self.pool(number), pages).taken;
                let is_free =
                    |at: u64, size: u64| !taken.iter().any(|(a, b)| *a < at + size && at < *b);
                self.sim().busy(number, is_free)
            })
            .collect();
        let need = match self.setting.policy {
            Policy::Vmm => bytes.next_multiple_of(self.setting.page),
            Policy::Blocks | Policy::Off => page_bytes(bytes),
        };
        let most = self.setting.capacity.min(self.setting.limit);
        let fits = busy.iter().sum::<u64>() + need <= most;
        let max_size = self.models[pool].max_size;
        let allowed = max_size == 0 || busy[pool] + need <= max_size;
        assert!(
            !(fits && allowed),
            "{bytes} bytes were refused with {busy:?} busy of {most}, {max_size}"
        );
    }

    /// Frees everything at the end, also memory that failed calls were for.
    pub fn end(mut self) -> Vec<String> {
        self.sim().fail(None);
        while !self.captures.is_empty() {
            self.end_capture(0, false);
        }
        while !self.graphs.is_empty() {
            self.destroy(0);
        }
        while !self.live.is_empty() {
            self.act(&super::program::Action::Free {
                block: 0,
                on: Some(self.live.len()),
            });
        }
        let ending = self.setting.ending;
        let ticks = if ending == Ending::Decay {
            TICKS_TO_DECAY + 3
        } else {
            0
        };
        self.sim().finish_unseen();
        if matches!(ending, Ending::Synchronized | Ending::Large) {
            self.synchronize_all();
        }
        if ending == Ending::Large {
            self.ask_for_all();
        }
        for _ in 0..ticks {
            self.each(|pool, probe| {
                pool.decay(probe);
            });
        }
        for number in 0..self.models.len() {
            let pool = self.pool(number);
            if ending != Ending::Decay {
                pool.trim(&self.probes[number], 0);
            }
            if self.sim().findings().is_empty() {
                let stats = pool.stats();
                assert_eq!((stats.reserved, stats.quarantined), (0, 0), "in the end");
            }
        }
        self.check();
        self.look();
        self.each(|pool, probe| {
            pool.decay(probe);
        });
        assert_eq!(self.sim().events(), 0, "events are kept");
        self.sim().findings()
    }

    fn synchronize_all(&self) {
        for context in self.streams.iter().map(|stream| stream.context) {
            let marks: Vec<_> = self
                .world
                .pools
                .iter()
                .map(|p| p.mark(context, None, true))
                .collect();
            for other in &self.streams {
                self.sim()
                    .synchronized(&self.sim().of_context(other.context));
            }
            for (pool, marks) in self.world.pools.iter().zip(&marks) {
                pool.synchronized(marks);
            }
        }
    }

    /// Requests all memory there is for one pool. Free memory of other pools must not prevent it.
    fn ask_for_all(&mut self) {
        let most = self.setting.capacity.min(self.setting.limit).min(1 << 30);
        let bytes = most / self.setting.page * self.setting.page;
        let pool = OF_DEVICE - 1;
        let max_size = self.models[pool].max_size;
        if max_size == 0 && bytes > 0 {
            let stream = self.streams[0];
            assert!(
                self.allocate(pool, stream, bytes, false),
                "{bytes} of {most} were refused"
            );
            self.act(&super::program::Action::Free { block: 0, on: None });
            self.synchronize_all();
        }
    }
}
