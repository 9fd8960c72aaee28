//! Requests of memory for pages, and their results.

use std::ops::AddAssign;

/// A request of memory for pages.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// Largest size of the pieces (`piece::SIZES`).
    pub size: usize,
    /// True if the first page, or the last, is a piece of its own.
    pub splits: (bool, bool),
    /// The stream that orders the work on the pages, if it is known.
    pub stream: Option<u8>,
    /// Number of tensors that the memory is for.
    pub tensors: u32,
    /// True if memory of the host will do where the device has none.
    pub is_needed: bool,
}

impl Wanted {
    /// Single pages of the device's memory, for no tensor.
    pub const UNNEEDED: Wanted = Wanted {
        size: 0,
        splits: (false, false),
        stream: None,
        tensors: 0,
        is_needed: false,
    };
}

/// Result of a request, in pages.
#[derive(Clone, Copy, Default)]
pub(super) struct Backed {
    pub on_host: u32,
    pub missing: u32,
}

impl AddAssign for Backed {
    fn add_assign(&mut self, more: Backed) {
        self.on_host += more.on_host;
        self.missing += more.missing;
    }
}
