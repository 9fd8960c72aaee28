//! The addresses of a pool, and the memory mapped there.

use crate::pool::block::Id;
use std::collections::{BTreeMap, BTreeSet};

/// Requests up to this many bytes share a part of the addresses, so that they do not take large
/// blocks apart.
pub(in crate::pool) const SMALL: u64 = 256 << 10;

/// Physical memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) struct Piece {
    /// Handle of the driver's piece; 0 for a driver allocation.
    pub handle: u64,
    pub bytes: u64,
}

/// Addresses of a pool, with their memory.
pub(in crate::pool) struct Space {
    /// The pieces in use, by address; without pages the driver's allocations.
    pub pieces: BTreeMap<u64, Piece>,
    /// Addresses of ranges without memory, in the parts for small and for large requests.
    pub unmapped: [BTreeSet<u64>; 2],
    /// Former places of moved pieces that are still mapped, as blocks with the pieces' handles.
    /// They are unmapped when the work there is complete.
    pub stale: Vec<(Id, u64)>,
    /// First blocks of contiguous ranges, by address. Ranges are not contiguous with each other.
    pub firsts: BTreeMap<u64, Id>,
    /// True once addresses have been reserved.
    pub is_reserved: bool,
}

impl Piece {
    pub fn new(handle: u64, bytes: u64) -> Self {
        Piece { handle, bytes }
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

    /// First block of the contiguous range that may contain an address.
    pub fn first(&self, address: u64) -> Option<Id> {
        self.firsts.range(..=address).next_back().map(|(_, id)| *id)
    }

    pub fn unmapped(&mut self, small: bool) -> &mut BTreeSet<u64> {
        let [of_small, of_large] = &mut self.unmapped;
        if small { of_small } else { of_large }
    }
}
