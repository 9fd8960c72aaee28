//! Addresses that the allocator above reserved (`ranges.rs`).

/// A range of them. The segment there begins where they do.
#[derive(Clone, Copy)]
pub(super) struct Reserved {
    pub base: u64,
    pub bytes: u64,
    /// True if the allocator is known to announce its tensors.
    pub is_trusted: bool,
}

impl Reserved {
    /// True if the range contains these bytes.
    pub fn has(&self, address: u64, bytes: u64) -> bool {
        address >= self.base && address - self.base + bytes <= self.bytes
    }
}
