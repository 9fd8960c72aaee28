//! The ways in which memory is served: by the configuration, as far as the devices can.

use std::sync::atomic::{AtomicU64, Ordering};

use gpushim_alloc::Policy;
use gpushim_config::Elastic;

use crate::base::settings;
use crate::cuda::devices;
use crate::record::trace;

/// True if pools of this library serve memory.
#[inline]
pub fn has_pools() -> bool {
    settings::config().policy != Policy::Off
}

/// True if this library only records. A refusal of the driver then reaches the program.
pub fn is_off() -> bool {
    !has_pools() && settings::config().elastic == Elastic::Off
}

/// True if `cudaMalloc` of a device is served in pages, and not in driver allocations.
#[inline]
pub fn is_paged(device: i32) -> bool {
    settings::config().policy == Policy::Vmm && devices::has_virtual_memory(device)
}

/// True if pools of this library serve the streams of a device: in pages, or not at all.
pub fn serves_streams(device: i32) -> bool {
    let is_possible = devices::has_virtual_memory(device);
    if has_pools() && !is_possible {
        let name = format!("device.{device}.stream_policy");
        note(&LEFT_TO_DRIVER, device, &name, "off");
    }
    has_pools() && is_possible
}

/// Notes that `cudaMalloc` of a device is served in driver allocations, if the user did not ask for
/// that.
pub fn serves_whole(device: i32) {
    if settings::config().policy == Policy::Vmm {
        let name = format!("device.{device}.policy");
        note(&IN_WHOLE, device, &name, "blocks");
    }
}

static LEFT_TO_DRIVER: AtomicU64 = AtomicU64::new(0);
static IN_WHOLE: AtomicU64 = AtomicU64::new(0);

/// Notes a policy in the trace, once for each of the first 64 devices.
fn note(noted: &AtomicU64, device: i32, fact: &str, policy: &str) {
    let bit = u32::try_from(device)
        .ok()
        .and_then(|device| 1u64.checked_shl(device));
    if bit.is_some_and(|bit| noted.fetch_or(bit, Ordering::Relaxed) & bit == 0) {
        let why = format!("{policy}: the device has no virtual memory management");
        trace::fact(fact, &why);
    }
}
