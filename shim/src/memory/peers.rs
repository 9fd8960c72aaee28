//! Contexts whose work may use the memory of others, as pools and elastic segments must know them.

use gpushim_alloc::{Context, Driver, Stream};

use crate::cuda::types::CUresult;
use crate::cuda::{captures, device};
use crate::memory::registry::Access;
use crate::memory::{peer_access, policy, pools};

/// A context was made: its work may use the memory of its device's others.
pub fn context_made(context: Context, device: i32) {
    peer_access::known(context, device);
    if policy::has_pools() && peer_access::any() {
        for owner in peer_access::of(context) {
            follow(context, owner);
        }
    }
}

/// Blocks of `owner` may have been handed out while earlier work on them was unfinished, and only `owner` was made to
/// wait for that work: an accessor that may use them from now on must wait for it, too.
fn follow(accessor: Context, owner: Context) {
    let driver = device::driver();
    if !captures::any()
        && let Ok(event) = driver.record(Stream::all_of(owner))
    {
        // Without the order the accessor's first work may be early, as it would be natively.
        let _ = driver.order(Stream::all_of(accessor), event);
        driver.retire(event);
    }
}

/// A context may use another's memory from here on, or no longer.
///
/// # Errors
/// The driver's, which twice refused access to memory that is mapped: nothing is enabled then.
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
    // To driver allocations the driver's own access applies.
    let Some(entry) = policy::is_paged(owner)
        .then(|| pools::serving_all(owner))
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
        // If the driver refuses, the device keeps access that it should have lost: correct programs are unaffected.
        return Ok(());
    }
    // Asked again: the first answer may be an error of earlier work.
    result.or_else(|_| set())
}
