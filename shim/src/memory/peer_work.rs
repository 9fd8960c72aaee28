//! Contexts whose work may use the memory of others, as pools and elastic segments must know them.

use gpushim_alloc::{Context, Driver, Stream};

use crate::cuda::types::CUresult;
use crate::cuda::{captures, device};
use crate::memory::registry::Access;
use crate::memory::{peer_access, policy, pool_life};

/// Notes a new context: its work may use the memory of its device's other contexts.
pub fn context_made(context: Context, device: i32) {
    peer_access::known(context, device);
    if policy::has_pools() && peer_access::any() {
        for owner in peer_access::of(context) {
            follow(context, owner);
        }
    }
}

/// Makes an accessor wait for earlier work on blocks of `owner`. Blocks may have been handed out
/// while that work was in progress, and only `owner` was made to wait for it.
fn follow(accessor: Context, owner: Context) {
    let driver = device::driver();
    if !captures::any()
        && let Ok(event) = driver.record(Stream::all_of(owner))
    {
        // Without the order, the accessor's first work may begin too early, as it would natively.
        let _ = driver.order(Stream::all_of(accessor), event);
        driver.retire(event);
    }
}

/// Allows or forbids a context to use another context's memory.
///
/// # Errors
/// The driver's, if it twice refused access to memory that is mapped. Nothing is enabled then.
pub fn peer(accessor: Context, owner: Context, enabled: bool) -> Result<(), CUresult> {
    if enabled {
        peer_access::peer(accessor, owner);
        if policy::has_pools() {
            follow(accessor, owner);
        }
    }
    let ordinal = |context| device::driver().ordinal_of(context).ok();
    let Some((accessor, owner)) = ordinal(accessor).zip(ordinal(owner)) else {
        return Ok(());
    };
    // The driver itself controls access to driver allocations.
    let Some(entry) = policy::is_paged(owner)
        .then(|| pool_life::serving_all(owner))
        .flatten()
    else {
        return Ok(());
    };
    let set = || {
        entry.set_access(Access::Peers, |devices| {
            devices.retain(|device| *device != accessor);
            devices.extend(enabled.then_some(accessor));
        })
    };
    let result = set();
    if !enabled {
        // If the driver refuses, the device keeps access that it should have lost: correct programs
        // are unaffected.
        return Ok(());
    }
    // Asked again: the first answer may be an error of earlier work.
    result.or_else(|_| set())
}
