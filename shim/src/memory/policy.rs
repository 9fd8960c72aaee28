//! How memory is to be served: what the configuration says, as far as the devices can.

use std::sync::OnceLock;

use gpushim_alloc::Policy;
use gpushim_config::Elastic;

use crate::base::settings;
use crate::cuda::devices;
use crate::record::trace;

/// How the pool of `cudaMalloc` places blocks. `None`: there is none, as others serve.
pub fn of_pool() -> Option<Policy> {
    match settings::config().policy {
        Policy::Off => None,
        Policy::Vmm if is_paged() => None,
        Policy::Vmm => {
            let why = "blocks: no device has virtual memory management";
            trace::fact("policy", why);
            Some(Policy::Blocks)
        }
        policy => Some(policy),
    }
}

/// Whether `cudaMalloc` is served in pages: it is asked for, and devices have virtual memory management. Memory of a
/// context must not lie in another one, where it would without.
#[inline]
pub fn is_paged() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| settings::config().policy == Policy::Vmm && devices::is_vmm_possible())
}

/// Whether stream-ordered memory is served by us at all.
#[inline]
pub fn serves_streams() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| settings::config().policy != Policy::Off)
}

/// Tells whether this library only records. What the driver refuses is refused then.
pub fn is_off() -> bool {
    let config = settings::config();
    !serves_streams() && config.policy == Policy::Off && config.elastic == Elastic::Off
}

/// Where the memory of a device's stream-ordered pools comes from.
pub fn of_streams(device: i32) -> Policy {
    let policy = settings::config().policy;
    if policy == Policy::Vmm && !devices::has_virtual_memory(device) {
        trace::fact(
            &format!("device.{device}.stream_policy"),
            "segments: the device has no virtual memory management",
        );
        return Policy::Segments;
    }
    policy
}
