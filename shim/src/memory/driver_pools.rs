//! The driver's own pools, if they serve the program under a limit.
//!
//! They grow by whole chunks, and shrink when the driver waits for work. The driver reports only
//! the sum of a pool. So a request claims the chunks that it may need, and then the new sum is
//! counted in place of the claim.

use std::ffi::c_uint;
use std::ptr;
use std::sync::{Mutex, MutexGuard};

use cudarc::driver::sys;

use crate::base::lock::lock;
use crate::base::thread;
use crate::cuda::captures::relaxed;
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, Handle, SUCCESS};
use crate::memory::limit::{self, Claim, Place};
use crate::memory::{context_drain, physical};

/// Bytes by whose multiples a pool grows (`pool.accounting` of tests/conformance/recorded.txt).
const CHUNK: u64 = 32 << 20;
/// The attribute for the bytes that a pool holds.
const RESERVED: c_uint = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT as c_uint;

struct Pool {
    handle: u64,
    /// The device whose memory it hands out; `None` for memory of the host.
    device: Option<i32>,
    /// Most bytes that its live blocks keep.
    most: u64,
    /// True once the program destroyed the pool while it held memory. The driver cannot be asked
    /// about it any more.
    is_destroyed: bool,
    /// True if a block of a destroyed pool was freed since the pool's memory was counted.
    has_freed: bool,
}

/// Most bytes that a block keeps of its pool.
fn chunks(bytes: u64) -> u64 {
    bytes.next_multiple_of(CHUNK).saturating_add(CHUNK)
}

impl Pool {
    fn new(handle: u64, device: Option<i32>) -> Pool {
        Pool {
            handle,
            device,
            most: 0,
            is_destroyed: false,
            has_freed: false,
        }
    }

    /// Bytes that the pool holds; `None` if it was destroyed or the driver's call failed.
    fn held(&self) -> Option<u64> {
        let (handle, mut bytes) = (self.handle as Handle, 0u64);
        // SAFETY: `bytes` is ours to write, and of this attribute's size; the pool is not
        // destroyed.
        let ask =
            || unsafe { real::cuMemPoolGetAttribute(handle, RESERVED, (&raw mut bytes).cast()) };
        (!self.is_destroyed && thread::call(|| relaxed(ask)) == SUCCESS).then_some(bytes)
    }

    /// Counts the bytes that it holds, and returns them. `trims`: first asks the driver to free
    /// unused bytes.
    fn count(&self, trims: bool) -> u64 {
        if trims && !self.is_destroyed {
            // SAFETY: the pool is not destroyed.
            let trim = || unsafe { real::cuMemPoolTrimTo(self.handle as Handle, 0) };
            thread::call(|| relaxed(trim));
        }
        let held = self.held();
        held.into_iter()
            .for_each(|bytes| limit::recount(Place::of_pool(self.handle), bytes));
        held.unwrap_or(0)
    }
}

static POOLS: Mutex<Vec<Pool>> = Mutex::new(Vec::new());

fn pools() -> MutexGuard<'static, Vec<Pool>> {
    lock(&POOLS)
}

/// Adds a pool of host memory that the program made.
pub fn made_of_host(handle: u64) {
    if limit::limit().is_some() {
        pools().push(Pool::new(handle, None));
    }
}

/// True if a pool's memory is the host's.
pub fn is_of_host(handle: u64) -> bool {
    let is_it = |pool: &Pool| pool.handle == handle && pool.device.is_none();
    pools().iter().any(is_it)
}

/// Returns the driver's pool that serves requests which name none; 0 if the driver has none.
pub fn current(device: i32) -> u64 {
    let mut pool = ptr::null_mut();
    // SAFETY: `pool` is ours to write.
    thread::call(|| unsafe { real::cuDeviceGetMemPool(&mut pool, device) });
    pool as u64
}

/// Claims the bytes by which a pool of a device may grow for a request. `None`: the limit does not
/// allow it.
pub fn reserve(device: i32, bytes: u64) -> Option<Claim> {
    limit::reserve_in_turn(device, growth(bytes), true)
}

/// Returns the most bytes by which a pool grows for a request.
pub fn growth(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(CHUNK).unwrap_or(bytes)
}

/// Counts a pool of a device that served a request of this many bytes with this claim.
pub fn served(handle: u64, device: i32, bytes: u64, claim: Claim) {
    let mut pools = pools();
    let at = pools.iter().position(|pool| pool.handle == handle);
    let mut pool = match at.map(|at| pools.swap_remove(at)) {
        Some(known) if !known.is_destroyed => known,
        _ => Pool::new(handle, Some(device)),
    };
    pool.device = Some(device);
    pool.most = pool.most.saturating_add(chunks(bytes));
    // Under the lock: another request's memory is known to have been counted.
    if let Some(held) = pool.held() {
        claim.keep(Place::of_pool(handle), held);
    }
    pools.push(pool);
}

/// Counts a freed block of this many bytes of a pool.
pub fn freed(handle: u64, bytes: u64) {
    let mut pools = pools();
    if let Some(pool) = pools.iter_mut().find(|pool| pool.handle == handle) {
        pool.most = pool.most.saturating_sub(chunks(bytes));
        pool.has_freed = pool.is_destroyed;
    }
}

/// Calls the driver to destroy a pool. The driver frees its memory with the last block, once work
/// is complete.
pub fn destroy(handle: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let mut pools = pools();
    let Some(at) = pools.iter().position(|pool| pool.handle == handle) else {
        drop(pools);
        return call();
    };
    let held = match pools[at].device {
        Some(_) => pools[at].count(true),
        None => 0,
    };
    let result = thread::call(call);
    if result == SUCCESS {
        pools[at].is_destroyed = true;
        pools[at].has_freed = true;
        if held == 0 {
            pools.swap_remove(at);
            limit::give(Place::of_pool(handle));
        }
    }
    result
}

/// Counts the bytes that the pools of a device hold now.
pub fn count(device: i32) {
    count_destroyed(device);
    count_all(device, false);
}

/// Waits for work of a device, and makes its pools free the memory that no block uses.
pub fn trim(device: i32) {
    count_destroyed(device);
    let is_here = |pool: &Pool| pool.device == Some(device);
    if pools().iter().any(is_here) {
        finish(device);
        count_all(device, true);
    }
}

fn count_all(device: i32, trims: bool) {
    for pool in pools().iter().filter(|pool| pool.device == Some(device)) {
        pool.count(trims);
    }
}

/// Counts the memory that destroyed pools may still hold, if blocks of theirs were freed. After the
/// work that used them, each live block keeps at most its own chunks.
fn count_destroyed(device: i32) {
    let is_to_count = |pool: &&mut Pool| pool.device == Some(device) && pool.has_freed;
    let begin = |pool: &mut Pool| {
        pool.has_freed = false;
        (pool.handle, pool.most)
    };
    let counted: Vec<_> = pools().iter_mut().filter(is_to_count).map(begin).collect();
    if counted.is_empty() {
        return;
    }
    // Without the lock: the work may wait for a thread that frees a block. Its memory is counted
    // the next time.
    finish(device);
    pools().retain(|pool| {
        let own = counted.iter().find(|(handle, _)| *handle == pool.handle);
        let Some((handle, most)) = own.filter(|_| pool.is_destroyed) else {
            return true;
        };
        let place = Place::of_pool(*handle);
        limit::shrink(place, *most);
        if *most == 0 {
            limit::give(place);
        }
        *most > 0
    });
}

/// Waits for all work of a device. If the wait fails, memory that the work uses stays in its pool.
fn finish(device: i32) {
    if let Some(context) = physical::context_on(device) {
        let _ = context_drain::context(context);
    }
}
