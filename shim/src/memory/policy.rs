//! The ways in which memory is served: as the configuration says, as far as the devices can.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use gpushim_alloc::Policy;
use gpushim_config::Elastic;

use crate::base::settings;
use crate::cuda::devices;
use crate::record::trace;

/// Tells whether `cudaMalloc` is served in whole driver allocations.
pub fn serves_blocks() -> bool {
    match settings::config().policy {
        Policy::Off => false,
        Policy::Blocks => true,
        Policy::Vmm if is_paged() => false,
        Policy::Vmm => {
            let why = "blocks: no device has virtual memory management";
            trace::fact("policy", why);
            true
        }
    }
}

/// Tells whether `cudaMalloc` is served in pages: by the policy, and by what devices can.
/// Without virtual memory management, memory of a context could lie in another one.
#[inline]
pub fn is_paged() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| settings::config().policy == Policy::Vmm && devices::is_vmm_possible())
}

/// Tells whether stream-ordered memory of any device is served by us.
#[inline]
pub fn serves_streams() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| settings::config().policy != Policy::Off)
}

/// Tells whether this library only records. What the driver refuses is refused then.
pub fn is_off() -> bool {
    !serves_streams() && settings::config().elastic == Elastic::Off
}

/// Source of the memory of a device's stream-ordered pools. `None`: the driver's own pools serve.
pub fn of_streams(device: i32) -> Option<Policy> {
    match settings::config().policy {
        Policy::Off => None,
        Policy::Vmm if !devices::has_virtual_memory(device) => {
            left_to_driver(device);
            None
        }
        policy => Some(policy),
    }
}

/// Notes in the trace, once for each of the first 64 devices, that the driver's own pools serve.
fn left_to_driver(device: i32) {
    static NOTED: AtomicU64 = AtomicU64::new(0);
    let bit = u32::try_from(device)
        .ok()
        .and_then(|device| 1u64.checked_shl(device));
    if bit.is_some_and(|bit| NOTED.fetch_or(bit, Ordering::Relaxed) & bit == 0) {
        trace::fact(
            &format!("device.{device}.stream_policy"),
            "off: the device has no virtual memory management",
        );
    }
}
