//! What pages are to get, and what came of it.

use std::ops::AddAssign;

/// What pages are to get.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// In pieces of this size (`piece::SIZES`) or smaller.
    pub size: usize,
    /// The stream that their work is ordered by, if it is known.
    pub stream: Option<u8>,
    /// Tensors that come with it.
    pub tensors: u32,
    /// The host's memory, too, where the device has none.
    pub is_needed: bool,
}

impl Wanted {
    /// Page by page, of the device.
    pub const UNNEEDED: Wanted = Wanted {
        size: 0,
        stream: None,
        tensors: 0,
        is_needed: false,
    };
}

/// What came of it, in pages.
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
