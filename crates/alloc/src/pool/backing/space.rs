//! The addresses of a pool: which of them have memory, and what memory that is.

use crate::pool::block::Id;
use std::collections::{BTreeMap, BTreeSet};

/// Requests up to this many bytes share a part of the addresses, so that they do not take large
/// blocks apart.
pub(in crate::pool) const SMALL: u64 = 256 << 10;

/// Physical memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) struct Piece {
    /// The driver's handle.
    pub handle: u64,
    pub bytes: u64,
    /// It may be registered outside the process: it must neither move nor go back.
    pub pinned: bool,
}

/// Where memory is.
pub(in crate::pool) struct Space {
    /// The pieces in use, by address; without pages the driver's allocations.
    pub pieces: BTreeMap<u64, Piece>,
    /// Ranges without memory, small and large part.
    pub unmapped: [BTreeSet<u64>; 2],
    /// Where pieces, by their handles, are still mapped after they have moved: to be unmapped when the
    /// work there is over.
    pub stale: Vec<(Id, u64)>,
    /// The first blocks of ranges that have nothing to do with each other, by address.
    pub firsts: BTreeMap<u64, Id>,
    /// True once addresses have been reserved.
    pub is_reserved: bool,
}

impl Piece {
    pub fn new(handle: u64, bytes: u64) -> Self {
        Piece {
            handle,
            bytes,
            pinned: false,
        }
    }
}

impl Space {
    pub fn new() -> Self {
        Space {
            pieces: BTreeMap::new(),
            unmapped: [BTreeSet::new(), BTreeSet::new()],
            stale: Vec::new(),
            firsts: BTreeMap::new(),
            is_reserved: false,
        }
    }

    /// The first block of the range of neighbours that an address may lie in.
    pub fn first(&self, address: u64) -> Option<Id> {
        self.firsts.range(..=address).next_back().map(|(_, id)| *id)
    }

    pub fn unmapped(&mut self, small: bool) -> &mut BTreeSet<u64> {
        let [of_small, of_large] = &mut self.unmapped;
        if small { of_small } else { of_large }
    }
}
