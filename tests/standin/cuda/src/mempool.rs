//! Stream-ordered pools: growth, reuse and return of their memory.
//!
//! A block that was freed on a stream may be reused on the same stream at once. Another stream may
//! reuse it when the stream of the free has reached the free. If there is no other memory, the
//! other stream waits for the free instead.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::abi::MemPoolProps;
use crate::capture;
use crate::codes::{INVALID_VALUE, OUT_OF_MEMORY, Outcome};
use crate::env::settings;
use crate::handles::Handles;
use crate::memory::{Allocation, Kind, PAGE};
use crate::pool::Pool;
use crate::state::{Guard, State, now};
use crate::timeline::Point;
use crate::work::Work;

/// Unit in which pools grow and shrink, in bytes (recorded.txt).
const CHUNK: u64 = 32 << 20;
/// Alignment of blocks, in bytes (recorded.txt).
const SPACING: u64 = 512;

/// Replaces a device's ordinal in pools of host memory.
pub const HOST: i32 = -1;

pub struct Mempools {
    pools: Handles<Pool>,
    standard: HashMap<i32, u64>,
    current: HashMap<i32, u64>,
    owners: BTreeMap<u64, u64>,
    /// Memory of other kinds, freed on a stream that has not reached the free yet.
    dying: Vec<(u64, Point)>,
    /// Time of the host's last wait for the device, in nanoseconds.
    waited: u64,
}

impl Default for Mempools {
    fn default() -> Self {
        Mempools {
            pools: Handles::new(0x5b),
            standard: HashMap::new(),
            current: HashMap::new(),
            owners: BTreeMap::new(),
            dying: Vec::new(),
            waited: 0,
        }
    }
}

impl Mempools {
    /// Returns the pool of a handle.
    pub fn get(&mut self, handle: u64) -> Outcome<&mut Pool> {
        self.pools.get_mut(handle).map_err(|_| INVALID_VALUE)
    }

    /// Returns the pool that a block came from.
    pub fn owner(&self, base: u64) -> Option<u64> {
        self.owners.get(&base).copied()
    }

    /// True if another device may use a block.
    pub fn lets_in(&self, base: u64, device: i32) -> bool {
        let pool = self
            .owner(base)
            .and_then(|owner| self.pools.get(owner).ok());
        pool.and_then(|pool| pool.access.get(&device))
            .is_some_and(|flags| *flags == 3)
    }

    /// Returns the chunk in which a block begins, as base and size.
    pub fn chunk(&self, base: u64) -> Option<(u64, u64)> {
        let pool = self.pools.get(self.owner(base)?).ok()?;
        let (start, size) = pool.chunks.range(..=base).next_back()?;
        Some((*start, *size))
    }

    /// Adds a pool that a program has asked for.
    pub fn create(&mut self, device: i32, props: &MemPoolProps) -> u64 {
        self.pools.insert(Pool::new(
            device,
            false,
            props.handles,
            props.max_size as u64,
        ))
    }

    /// Returns the driver's own pool of a device, and makes it at the first call.
    pub fn standard(&mut self, device: i32) -> u64 {
        let pools = &mut self.pools;
        *self
            .standard
            .entry(device)
            .or_insert_with(|| pools.insert(Pool::new(device, true, 0, 0)))
    }

    /// Returns the pool that a device's allocations come from.
    pub fn current(&mut self, device: i32) -> u64 {
        match self.current.get(&device) {
            Some(pool) => *pool,
            None => self.standard(device),
        }
    }

    /// Sets the pool that a device's allocations come from.
    pub fn choose(&mut self, device: i32, pool: u64) -> Outcome {
        // It must be a pool of the device.
        let found = self.get(pool)?;
        if found.is_destroyed || found.device != device {
            return Err(INVALID_VALUE);
        }
        self.current.insert(device, pool);
        Ok(())
    }
}

impl State {
    /// Frees idle chunks of a pool until it holds at most `keep` bytes.
    pub fn trim_pool(&mut self, handle: u64, keep: u64) -> Outcome {
        let waited = self.mempools.waited;
        let pool = self.mempools.get(handle)?;
        let device = pool.device;
        let chunks: Vec<Range<u64>> = pool
            .chunks
            .iter()
            .map(|(base, size)| *base..base + size)
            .collect();
        for chunk in chunks.into_iter().rev() {
            let pool = self.mempools.get(handle)?;
            if pool.reserved[0] <= keep {
                break;
            }
            if !pool.is_idle(&chunk, waited) {
                continue;
            }
            pool.take(&chunk);
            pool.chunks.remove(&chunk.start);
            let size = chunk.end - chunk.start;
            pool.reserved[0] -= size;
            self.model.forget(chunk.clone());
            self.memory.unreserve(chunk.start, size);
            if device != HOST {
                self.refund(device, size);
            }
        }
        Ok(())
    }

    fn grow_pool(&mut self, handle: u64, size: u64) -> Outcome {
        let bytes = size.checked_next_multiple_of(CHUNK).ok_or(OUT_OF_MEMORY)?;
        let pool = self.mempools.get(handle)?;
        let device = pool.device;
        if pool.max_size != 0 && pool.reserved[0] + bytes > pool.max_size.next_multiple_of(CHUNK) {
            return Err(OUT_OF_MEMORY);
        }
        if device != HOST {
            self.charge(device, bytes)?;
        }
        let reserved = self.memory.reserve(bytes, PAGE);
        if reserved.is_err() && device != HOST {
            self.refund(device, bytes);
        }
        let base = reserved?;
        let pool = self.mempools.get(handle)?;
        pool.chunks
            .extend((0..bytes / CHUNK).map(|index| (base + index * CHUNK, CHUNK)));
        pool.free.give(base, bytes);
        pool.reserved[0] += bytes;
        pool.reserved[1] = pool.reserved[1].max(pool.reserved[0]);
        Ok(())
    }

    /// Finds or makes room for a new block and returns its address.
    fn place(&mut self, handle: u64, size: u64, stream: u64) -> Outcome<u64> {
        let lane = self.streams.get(stream)?.lane;
        let look = |state: &mut State, patient| {
            let State {
                model, mempools, ..
            } = state;
            let pool = mempools.get(handle)?;
            let found = pool.find(size, stream, patient && pool.reuse[2] != 0, |point| {
                model.is_after(lane, point)
            });
            found.ok_or(OUT_OF_MEMORY)
        };
        if let Ok(at) = look(self, false) {
            return Ok(at);
        }
        let mut grown = self.grow_pool(handle, size);
        if grown.is_err() {
            self.trim_pool(handle, 0)?;
            grown = self.grow_pool(handle, size);
        }
        look(self, grown.is_err())
    }

    fn drop_block(&mut self, base: u64, trace: Option<(u64, Point)>) -> Outcome {
        let handle = self.mempools.owners.remove(&base).ok_or(INVALID_VALUE)?;
        let found = self.memory.remove(base).ok_or(INVALID_VALUE)?;
        let pool = self.mempools.get(handle)?;
        pool.used[0] = pool.used[0].saturating_sub(found.size);
        pool.live -= 1;
        pool.give(base..base + found.spacing, trace);
        self.drop_if_over(handle)
    }

    /// Removes a destroyed pool after the free of its last block.
    fn drop_if_over(&mut self, handle: u64) -> Outcome {
        let pool = self.mempools.get(handle)?;
        if pool.is_destroyed && pool.live == 0 {
            self.trim_pool(handle, 0)?;
            // Chunks with pending frees on streams are freed at a later synchronisation.
            if self.mempools.get(handle)?.reserved[0] == 0 {
                self.mempools.pools.remove(handle)?;
            }
        }
        Ok(())
    }

    /// Destroys a pool. It lives until its last block is freed.
    pub fn destroy_pool(&mut self, handle: u64) -> Outcome {
        let pool = self.mempools.get(handle)?;
        if pool.is_default || pool.is_destroyed {
            return Err(INVALID_VALUE);
        }
        pool.is_destroyed = true;
        self.mempools
            .current
            .retain(|_, current| *current != handle);
        self.drop_if_over(handle)
    }

    /// Forgets pending frees of memory that no longer exists.
    pub fn forget_dead(&mut self) {
        let memory = &self.memory;
        let is_there = |(base, _): &(u64, Point)| memory.get(*base).is_some();
        self.mempools.dying.retain(is_there);
    }

    /// Completes pending frees after a wait of the host. Pools free the memory beyond their
    /// thresholds.
    pub fn pools_after_wait(&mut self) {
        let now = now();
        self.mempools.waited = now;
        let dying = std::mem::take(&mut self.mempools.dying);
        let (past, dying): (Vec<_>, Vec<_>) = dying
            .into_iter()
            .partition(|(_, point)| point.finish.is_past(now));
        self.mempools.dying = dying;
        for (base, _) in past {
            let _ = self.release(base);
        }
        let over =
            |(_, pool): &(u64, &Pool)| pool.reserved[0] > pool.threshold || pool.is_destroyed;
        let pools: Vec<(u64, u64)> = self
            .mempools
            .pools
            .iter()
            .filter(over)
            .map(|(handle, pool)| (handle, pool.threshold))
            .collect();
        for (handle, threshold) in pools {
            let _ = self.trim_pool(handle, threshold);
            let _ = self.drop_if_over(handle);
        }
    }
}

/// Allocates on a stream; 0 for no bytes. During capture it adds a node to the graph instead.
pub fn allocate(state: &mut Guard, pool: Option<u64>, bytes: u64, stream: u64) -> Outcome<u64> {
    let context = state.streams.get(stream)?.context;
    let device = state.contexts.get(context)?.device;
    if bytes == 0 {
        return Ok(0);
    }
    if bytes > state.device(device)?.total {
        return Err(OUT_OF_MEMORY);
    }
    if capture::is_in_capture(state, stream)? {
        let range = crate::graph_memory::reserve(state, device, bytes, context)?;
        let base = range.start;
        capture::append(state, stream, Work::Alloc(range))?;
        return Ok(base);
    }
    capture::legacy_call(state, stream)?;
    capture::unsafe_call(state)?;
    let handle = match pool {
        Some(pool) => pool,
        None => state.mempools.current(device),
    };
    let size = bytes.next_multiple_of(SPACING);
    let base = state.place(handle, size, stream)?;
    let lane = state.streams.get(stream)?.lane;
    let pool = state.mempools.get(handle)?;
    pool.live += 1;
    pool.used[0] += bytes;
    pool.used[1] = pool.used[1].max(pool.used[0]);
    let device = pool.device;
    let traces = pool.take(&(base..base + size));
    let orders = settings().memory_orders;
    for trace in traces
        .iter()
        .filter(|trace| orders && trace.stream != stream)
    {
        state.model.wait(lane, &trace.point);
    }
    let allocation = Allocation {
        size: bytes,
        spacing: size,
        context: 0,
        device,
        kind: Kind::Pool,
        flags: 0,
        id: 0,
        on_free: Some(free_now),
    };
    state.memory.insert(base, allocation);
    state.mempools.owners.insert(base, handle);
    match orders {
        true => crate::work::submit(state, stream, Work::Alloc(base..base + bytes))?,
        false => state.model.forget(base..base + size),
    }
    Ok(base)
}

/// Frees memory on a stream. During capture it adds a node to the graph instead.
pub fn free(state: &mut Guard, base: u64, stream: u64) -> Outcome {
    if base == 0 {
        return Ok(());
    }
    let found = state.memory.get(base).cloned();
    let Some(found) = found else {
        if state.memory.was_freed(base) {
            state
                .model
                .find(format!("double free of {base:#x} on a stream"));
        }
        return Err(INVALID_VALUE);
    };
    let range = base..base + found.size;
    let in_capture = capture::is_in_capture(state, stream)?;
    match found.kind {
        Kind::Graph if in_capture => return capture::append(state, stream, Work::Free(range)),
        Kind::Graph if !crate::graph_memory::is_live(state, base) => return Err(INVALID_VALUE),
        Kind::Pool | Kind::Graph | Kind::Device if !in_capture => {}
        _ => return Err(INVALID_VALUE),
    }
    if !in_capture {
        // In this order: if both checks fail the code is 906 (measured on an H100).
        capture::legacy_call(state, stream)?;
        capture::unsafe_call(state)?;
    }
    if found.kind == Kind::Device && found.on_free.is_some() {
        return refuse(state, base);
    }
    let lane = state.streams.get(stream)?.lane;
    let point = if settings().memory_orders {
        crate::work::submit(state, stream, Work::Free(range))?;
        state.model.record(lane, now())
    } else {
        capture::legacy_call(state, stream)?;
        state.model.withdraw(range, "free");
        state.model.reached(lane)
    };
    match found.kind {
        Kind::Pool => state.drop_block(base, Some((stream, point))),
        Kind::Graph => crate::graph_memory::end_use(state, base),
        _ => {
            // Memory of `cuMemAlloc` is freed when the stream has reached the free.
            if let Some(found) = state.memory.get_mut(base) {
                found.on_free = Some(refuse);
            }
            state.mempools.dying.push((base, point));
            Ok(())
        }
    }
}

/// Frees a pool's block for `cuMemFree`. Every stream may reuse it from now on.
fn free_now(state: &mut Guard, base: u64) -> Outcome {
    state.drop_block(base, None)
}

/// Refuses `cuMemFree` of memory that was freed on a stream before.
fn refuse(state: &mut Guard, base: u64) -> Outcome {
    state.model.find(format!(
        "double free of {base:#x}, freed on a stream before"
    ));
    Err(INVALID_VALUE)
}
