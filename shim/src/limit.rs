//! What the process may hold of a device (`GPUSHIM_LIMIT`), whoever asks for it.

use crate::{allocator, foreign, mempools, process};

/// Bytes of device memory that the process holds: the pools' and the driver's own.
pub fn held() -> u64 {
    let cached = allocator::used().map_or(0, |pool| pool.stats(None).reserved);
    foreign::device_bytes() + cached + mempools::reserved(None)
}

/// Whether so many bytes more may be held.
pub fn fits(bytes: u64) -> bool {
    process::config()
        .limit
        .is_none_or(|limit| held().saturating_add(bytes) <= limit)
}
