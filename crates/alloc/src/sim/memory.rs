//! Physical memory, its mappings, and the allocations in it.

use std::collections::{BTreeMap, HashMap};

/// Part of a piece of physical memory: handle, offset, and bytes.
pub type Part = (u64, u64, u64);

pub struct Piece {
    pub bytes: u64,
    /// Number of the pool that made it.
    pub pool: usize,
    /// Number of addresses where it is mapped.
    pub mapped: usize,
    /// True once it was mapped.
    pub used: bool,
}

pub struct Mapping {
    pub bytes: u64,
    pub handle: u64,
    /// Devices that may use it, one bit each.
    pub access: u8,
    /// True if it is registered outside the process.
    pub pinned: bool,
}

#[derive(Default)]
pub struct Memory {
    next: u64,
    pub pieces: HashMap<u64, Piece>,
    pub mappings: BTreeMap<u64, Mapping>,
    reserved: Vec<(u64, u64)>,
    /// Allocations by address: bytes, and number of the allocation.
    pub grants: BTreeMap<u64, (u64, u64)>,
    /// Bytes that each pool holds, and their peak.
    pub held: HashMap<usize, (u64, u64)>,
    /// Last mapping of each piece that was unmapped, with its address.
    left: HashMap<u64, (u64, Mapping)>,
}

/// Address where driver allocations begin.
pub const ALLOCATIONS: u64 = 1 << 52;

pub fn overlap(a: u64, a_bytes: u64, b: u64, b_bytes: u64) -> bool {
    a < b + b_bytes && b < a + a_bytes
}

impl Memory {
    pub fn reserve(&mut self, bytes: u64) -> u64 {
        let last = self.reserved.iter().map(|(base, _)| base >> 44).max();
        let base = (last.unwrap_or(0) + 1) << 44;
        self.reserved.push((base, bytes));
        base
    }

    /// Removes reserved addresses. Returns a finding if that is wrong.
    pub fn unreserve(&mut self, address: u64, bytes: u64) -> Option<String> {
        let before = self.reserved.len();
        self.reserved.retain(|known| *known != (address, bytes));
        let is_used = self.within(address, bytes).next().is_some();
        if is_used || self.reserved.len() == before {
            return Some(format!(
                "{address:#x} is given back, but used or never reserved"
            ));
        }
        None
    }

    pub fn total(&self) -> u64 {
        self.pieces.values().map(|piece| piece.bytes).sum()
    }

    pub fn create(&mut self, pool: usize, bytes: u64) -> u64 {
        self.next += 1;
        let piece = Piece {
            bytes,
            pool,
            mapped: 0,
            used: false,
        };
        self.pieces.insert(self.next, piece);
        let (held, peak) = self.held.entry(pool).or_default();
        *held += bytes;
        *peak = (*held).max(*peak);
        self.next
    }

    /// Destroys a piece. Returns a finding if that is wrong.
    pub fn destroy(&mut self, handle: u64, bytes: u64) -> Option<String> {
        let Some(piece) = self.pieces.remove(&handle) else {
            return Some(format!("piece {handle} is destroyed but does not exist"));
        };
        self.held.entry(piece.pool).or_default().0 -= piece.bytes;
        if piece.mapped > 0 {
            return Some(format!("piece {handle} is destroyed while mapped"));
        }
        (piece.bytes != bytes).then(|| format!("piece {handle} has another size"))
    }

    /// Maps a piece. Returns a finding if that is wrong.
    pub fn map(&mut self, address: u64, bytes: u64, handle: u64) -> Option<String> {
        let inside = |(base, size): &(u64, u64)| address >= *base && address + bytes <= base + size;
        if !self.reserved.iter().any(inside) {
            return Some(format!("{address:#x} is mapped but was not reserved"));
        }
        if self.within(address, bytes).next().is_some() {
            return Some(format!("{address:#x} is mapped twice"));
        }
        match self.pieces.get_mut(&handle) {
            Some(piece) if piece.bytes == bytes => {
                piece.mapped += 1;
                piece.used = true;
            }
            _ => return Some(format!("piece {handle} is mapped but is no such piece")),
        }
        self.put(address, bytes, handle, 0);
        None
    }

    fn put(&mut self, address: u64, bytes: u64, handle: u64, access: u8) {
        let mapping = Mapping {
            bytes,
            handle,
            access,
            pinned: false,
        };
        self.mappings.insert(address, mapping);
    }

    /// Unmaps a piece. Returns a finding if that is wrong.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> Option<String> {
        match self.mappings.remove(&address) {
            Some(mapping) if mapping.bytes == bytes => {
                if let Some(piece) = self.pieces.get_mut(&mapping.handle) {
                    piece.mapped -= 1;
                }
                let pinned = || format!("{address:#x} is unmapped but registered outside");
                let finding = mapping.pinned.then(pinned);
                self.left.insert(mapping.handle, (address, mapping));
                finding
            }
            _ => Some(format!(
                "{address:#x} is unmapped but there is no such mapping"
            )),
        }
    }

    /// Restores the last mapping of a piece that was unmapped.
    pub fn stay(&mut self, handle: u64) {
        if let Some(piece) = self.pieces.get_mut(&handle)
            && let Some((address, mapping)) = self.left.remove(&handle)
        {
            piece.mapped += 1;
            self.mappings.insert(address, mapping);
        }
    }

    /// True if a pool made a piece.
    pub fn is_of(&self, handle: u64, pool: usize) -> bool {
        let piece = self.pieces.get(&handle);
        piece.is_some_and(|piece| piece.pool == pool)
    }

    /// True if the piece mapped at an address is mapped elsewhere, too.
    pub fn is_twin(&self, address: u64) -> bool {
        let mapping = self.mappings.get(&address);
        let piece = mapping.and_then(|mapping| self.pieces.get(&mapping.handle));
        piece.is_some_and(|piece| piece.mapped > 1)
    }

    /// Makes a driver allocation at the lowest free address, so that the use of an old one is
    /// noticed soon.
    pub fn allocate(&mut self, pool: usize, bytes: u64, access: u8) -> u64 {
        let mut at = ALLOCATIONS;
        for (address, mapping) in self.mappings.range(ALLOCATIONS..) {
            if at + bytes <= *address {
                break;
            }
            at = (address + mapping.bytes).next_multiple_of(512);
        }
        let handle = self.create(pool, bytes);
        if let Some(piece) = self.pieces.get_mut(&handle) {
            piece.mapped = 1;
        }
        self.put(at, bytes, handle, access);
        at
    }

    /// Mappings that a range touches.
    pub fn within(&self, address: u64, bytes: u64) -> impl Iterator<Item = (&u64, &Mapping)> {
        let below = self.mappings.range(..=address).next_back();
        let first = below.map_or(address, |(at, _)| *at);
        let touched =
            move |(at, mapping): &(&u64, &Mapping)| overlap(**at, mapping.bytes, address, bytes);
        self.mappings.range(first..address + bytes).filter(touched)
    }

    /// Returns the physical memory of a range, or the reason that a device cannot use it.
    pub fn resolve(&self, address: u64, bytes: u64, device: i32) -> Result<Vec<Part>, String> {
        let mut parts = Vec::new();
        let mut at = address;
        for (base, mapping) in self.within(address, bytes) {
            if *base > at {
                break;
            }
            if mapping.access & 1 << device == 0 {
                return Err(format!("device {device} has no access to {at:#x}"));
            }
            let end = (base + mapping.bytes).min(address + bytes);
            parts.push((mapping.handle, at - base, end - at));
            at = end;
        }
        if at < address + bytes {
            return Err(format!("there is no memory at {at:#x}"));
        }
        Ok(parts)
    }

    /// True if any memory in a range is allocated.
    pub fn is_granted(&self, address: u64, bytes: u64) -> bool {
        let before = self.grants.range(..address + bytes).next_back();
        before.is_some_and(|(at, (size, _))| at + size > address)
    }
}
