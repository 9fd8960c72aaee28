//! The pool of this process, and what hooks do with it.

use std::sync::OnceLock;

use gpushim_core::pool::{Context, FreeError, Policy, Pool, Settings};
use gpushim_core::trace::Class;

use crate::base::thread::{self, Uncancelled};
use crate::base::{boundary, settings};
use crate::cuda::types::{CUresult, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS};
use crate::cuda::{captures, context, green};
use crate::memory::budget::{self, Claim};
use crate::memory::device::{Cuda, check};
use crate::memory::{growth, memory_info, paged, passthrough, pools, shortage};
use crate::record::{events, trace};

static POOL: OnceLock<Option<Pool<Cuda>>> = OnceLock::new();

/// The pool; `None` under the policy `off`.
#[inline]
pub fn pool() -> Option<&'static Pool<Cuda>> {
    match POOL.get() {
        Some(pool) => pool.as_ref(),
        None => create(),
    }
}

#[cold]
fn create() -> Option<&'static Pool<Cuda>> {
    let _uncancelled = Uncancelled::new();
    boundary::prepare();
    let pool = POOL.get_or_init(|| {
        let config = settings::config();
        let settings = Settings {
            policy: policy()?,
            reuse: config.reuse,
            limit: config.limit,
            cache_max: config.cache_max,
            ..Settings::default()
        };
        Some(Pool::new(Cuda::new(), settings))
    });
    pool.as_ref()
}

/// How the pool places blocks. `None`: there is none, as others serve.
fn policy() -> Option<Policy> {
    match settings::config().policy {
        Policy::Off => None,
        Policy::Vmm if paged::is_enabled() => None,
        Policy::Vmm => {
            let why = "blocks: no device has virtual memory management";
            trace::fact("policy", why);
            Some(Policy::Blocks)
        }
        policy => Some(policy),
    }
}

/// The pool if it was ever used: for hooks that have nothing to tell a pool that is empty.
#[inline]
pub fn used() -> Option<&'static Pool<Cuda>> {
    POOL.get().and_then(Option::as_ref)
}

/// The address of memory of the pool's in the current context. `None`: the driver must answer.
#[inline]
pub fn allocate(bytes: u64) -> Option<Result<u64, CUresult>> {
    if bytes == 0 {
        return None;
    }
    let Some(pool) = pool() else {
        return paged::allocate(bytes);
    };
    let context = context::current().filter(|context| !green::is(*context))?;
    if let Some(grant) = pool.try_allocate(context, bytes) {
        events::granted(&grant);
        return Some(Ok(grant.address));
    }
    Some(allocate_slowly(pool, context, bytes))
}

#[cold]
fn allocate_slowly(pool: &Pool<Cuda>, context: Context, bytes: u64) -> Result<u64, CUresult> {
    let _uncancelled = Uncancelled::new();
    trace::open();
    growth::begins();
    events::driver_ns();
    if captures::any() {
        captures::close_of_ended_threads();
    }
    let result = shortage::ask(|| match pool.allocate(context, bytes) {
        Err(OUT_OF_MEMORY) => {
            let is_more = captures::release_broken();
            if pools::trim(None, true) > 0 || is_more {
                pool.allocate(context, bytes)
            } else {
                Err(OUT_OF_MEMORY)
            }
        }
        result => result,
    });
    match &result {
        Ok(grant) => events::granted(grant),
        Err(error) => refused(Class::Device, bytes, *error),
    }
    result.map(|grant| grant.address)
}

/// The address of memory of the pool's that is there at once, for callers with another road.
#[inline]
pub fn allocate_at_once(bytes: u64) -> Option<u64> {
    if bytes == 0 {
        return None;
    }
    let context = context::current().filter(|context| !green::is(*context))?;
    let grant = pool()?.try_allocate(context, bytes)?;
    events::granted(&grant);
    Some(grant.address)
}

/// Takes an address back. `None`: it is not the pool's, and the driver must answer.
#[inline]
pub fn free(address: u64) -> Option<Result<(), CUresult>> {
    match used()?.free(address, events::freed) {
        Ok(()) => Some(Ok(())),
        Err(FreeError::Unknown) => None,
        // What the driver says of an address that it has taken back already.
        Err(FreeError::NotLive) => Some(Err(INVALID_VALUE)),
        Err(FreeError::Driver(error)) => Some(Err(error)),
    }
}

/// Calls the driver for memory that is not the pool's. If it has none, the cache is given back and
/// the driver asked again before the host hears of it.
pub fn forward(class: Class, bytes: u64, call: impl FnMut() -> CUresult) -> CUresult {
    forward_on(None, class, bytes, call)
}

/// As [`forward`], for memory of a device that need not be the current one.
pub fn forward_on(
    device: Option<i32>,
    class: Class,
    bytes: u64,
    mut call: impl FnMut() -> CUresult,
) -> CUresult {
    let _uncancelled = Uncancelled::new();
    events::driver_ns();
    let Some(claim) = claim(device, class, bytes) else {
        refused(class, bytes, OUT_OF_MEMORY);
        return OUT_OF_MEMORY;
    };
    let mut result = thread::timed(&mut call);
    if result == OUT_OF_MEMORY {
        let again = shortage::ask(|| {
            pools::make_room();
            check(thread::timed(&mut call))
        });
        result = again.map_or_else(|error| error, |()| SUCCESS);
        if result == OUT_OF_MEMORY {
            refused(class, bytes, result);
        }
    }
    if result == SUCCESS {
        match passthrough::context_of(class) {
            Some(context) => claim.keep_in(context),
            None => claim.keep(),
        }
    }
    result
}

/// Takes bytes for a request, out of what is cached if need be. `None`: the limit does not allow them.
fn claim(device: Option<i32>, class: Class, bytes: u64) -> Option<Claim> {
    if budget::limit().is_none() || !passthrough::takes_device_memory(class) {
        return Some(Claim::none());
    }
    let device = device.unwrap_or_else(|| context::device().into());
    budget::reserve(device, bytes).or_else(|| {
        let again = || {
            pools::make_room();
            budget::reserve(device, bytes).ok_or(OUT_OF_MEMORY)
        };
        shortage::ask(again).ok()
    })
}

/// As [`forward`], for calls on a hot path that rarely take memory.
#[inline]
pub fn retry(mut call: impl FnMut() -> CUresult) -> CUresult {
    match call() {
        OUT_OF_MEMORY => forward_unsized(call),
        result => result,
    }
}

/// As [`forward`], for calls that take memory of a size that nobody told us.
pub fn forward_unsized(call: impl FnMut() -> CUresult) -> CUresult {
    forward(Class::Unknown, 0, call)
}

fn refused(class: Class, bytes: u64, error: CUresult) {
    let figures = memory_info::of_device();
    events::out_of_memory(class, bytes, error, figures, memory_info::of_pools);
}
