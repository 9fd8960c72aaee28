//! What `cuMemGetInfo` says: the driver's figures, the cache counted as free, the limit as the total.

use crate::{allocator, context, foreign, process};

/// Corrects the driver's figures, in bytes, for the current device.
pub fn adjust(free: Option<&mut usize>, total: Option<&mut usize>) {
    let limit = process::config().limit;
    let Some(pool) = allocator::used() else {
        if let Some(limit) = limit {
            limited(free, total, limit, foreign::device_bytes());
        }
        return;
    };
    let device = i32::from(context::device());
    let mut free = free;
    if let Some(free) = free.as_deref_mut() {
        *free += pool.cached_bytes(device) as usize;
    }
    if let Some(limit) = limit {
        let held = pool.stats(Some(device)).allocated + foreign::device_bytes();
        limited(free, total, limit, held);
    }
}

fn limited(free: Option<&mut usize>, total: Option<&mut usize>, limit: u64, held: u64) {
    if let Some(free) = free {
        *free = (*free).min(limit.saturating_sub(held) as usize);
    }
    if let Some(total) = total {
        *total = (*total).min(limit as usize);
    }
}
