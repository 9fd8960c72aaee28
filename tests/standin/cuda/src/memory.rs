//! All memory that the device can reach, by address: its kinds and its allocation.
//!
//! Device addresses are host addresses of real, lazily backed memory, so that copies move real
//! bytes.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::codes::{INVALID_VALUE, OUT_OF_MEMORY, Outcome};
use crate::env::settings;
use crate::ranges::Ranges;
use crate::shared::Shared;
use crate::state::{Guard, State};
use crate::work::Place;

pub use crate::memory_api::PROCS;

/// Granularity of device memory, in bytes.
pub const PAGE: u64 = 2 << 20;
/// Distance of small allocations within a page, in bytes (facts.md).
const SPACING: u64 = 512;
/// Size of the largest allocation that shares a page, in bytes.
const SMALL: u64 = 1 << 20;
/// Size of the pieces in which address space is reserved, in bytes.
const RESERVE: u64 = 64 << 30;
/// Size from which a reservation is unmapped when it is freed, in bytes.
const APART: u64 = 1 << 30;
/// Number of freed ranges kept, to distinguish a use after free from a wild address.
const FREED: usize = 4096;

/// Kind of an allocation's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory of `cuMemAlloc` and `cuMemAllocPitch`.
    Device,
    /// Memory of `cuMemAllocManaged`.
    Managed,
    /// Memory of an array or a mipmapped array.
    Array,
    /// Memory of a graph's allocation node.
    Graph,
    /// Block of a stream-ordered pool.
    Pool,
    /// Mapping of `cuMemMap`. An access may extend into an adjacent mapping.
    Mapped,
    /// Memory from an IPC handle or an external memory.
    Imported,
    /// Memory of `cuMemAllocHost` and `cuMemHostAlloc`.
    Host,
    /// Memory of `cuMemHostRegister`.
    Registered,
}

/// One allocation in the table of memory.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// Size that the caller asked for, in bytes.
    pub size: u64,
    /// Bytes of address space that it takes.
    pub spacing: u64,
    /// Context that owns it; 0 for pool blocks and mappings.
    pub context: u64,
    /// Ordinal of its device. For host memory, the device of the current context at its creation.
    pub device: i32,
    pub kind: Kind,
    /// Flags of the call that made it.
    pub flags: u32,
    /// Number of this allocation, for `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub id: u64,
    /// Function that frees it for `cuMemFree`, if another module must do so.
    pub on_free: Option<fn(&mut Guard, u64) -> Outcome>,
}

/// The table of all memory.
#[derive(Default)]
pub struct Memory {
    live: BTreeMap<u64, Allocation>,
    freed: BTreeMap<u64, u64>,
    space: Ranges,
    /// All address space that is reserved or kept for reuse.
    pieces: Vec<Range<u64>>,
    /// Pieces that are one reservation each, by the reservation's address.
    apart: HashMap<u64, Range<u64>>,
    /// Free ranges within shared pages, by context.
    small: HashMap<u64, Ranges>,
    ids: u64,
}

impl Memory {
    /// Returns the allocation that holds the address, with its base.
    pub fn find(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (base, found) = self.live.range(..=address).next_back()?;
        (address < base + found.size.max(1)).then_some((*base, found))
    }

    /// Returns the allocation that begins at the address.
    pub fn get(&self, base: u64) -> Option<&Allocation> {
        self.live.get(&base)
    }

    /// Returns the allocation that begins at the address, for a change.
    pub fn get_mut(&mut self, base: u64) -> Option<&mut Allocation> {
        self.live.get_mut(&base)
    }

    /// Adds memory that is usable from now on, and sets its id.
    pub fn insert(&mut self, base: u64, mut allocation: Allocation) {
        let end = base + allocation.spacing;
        while let Some((start, _)) = self
            .freed
            .range(..end)
            .next_back()
            .filter(|(_, stop)| **stop > base)
        {
            let start = *start;
            self.freed.remove(&start);
        }
        self.ids += 1;
        allocation.id = self.ids;
        self.live.insert(base, allocation);
    }

    /// Removes memory from the table. The caller frees its address space.
    pub fn remove(&mut self, base: u64) -> Option<Allocation> {
        let allocation = self.live.remove(&base)?;
        if self.freed.len() >= FREED {
            self.freed.pop_first();
        }
        self.freed.insert(base, base + allocation.size.max(1));
        Some(allocation)
    }

    /// True if memory at this address was freed and not allocated again since.
    pub fn was_freed(&self, address: u64) -> bool {
        self.freed
            .range(..=address)
            .next_back()
            .is_some_and(|(_, end)| *end > address)
    }

    /// Checks that all of the bytes may be touched. The error is the text of a finding.
    pub fn check(&self, bytes: &Range<u64>) -> Result<(), String> {
        let mut at = bytes.start;
        while at < bytes.end {
            let Some((base, found)) = self.find(at) else {
                let what = match (self.was_freed(at), at == bytes.start) {
                    (true, _) => "freed memory",
                    (_, true) => "an address that is not mapped",
                    (_, false) => "memory beyond the end of its mapping",
                };
                return Err(format!(
                    "address: use of {what}, {:#x}..{:#x}",
                    bytes.start, bytes.end
                ));
            };
            let end = base + found.size;
            // An access may extend beyond one allocation only from mapping to mapping.
            if (bytes.start < base || bytes.end > end) && found.kind != Kind::Mapped {
                return Err(format!(
                    "bounds: {:#x}..{:#x} goes beyond the allocation {base:#x}..{end:#x}",
                    bytes.start, bytes.end
                ));
            }
            at = end;
        }
        Ok(())
    }

    /// True if a copy's address is memory that the driver knows or must know.
    pub fn is_known(&self, place: Place, address: u64) -> bool {
        // A stale device address must not count as pageable host memory.
        place == Place::Device || self.find(address).is_some() || self.owns(address)
    }

    /// True if address space belongs to the driver, in use or kept.
    pub fn owns(&self, address: u64) -> bool {
        self.pieces.iter().any(|piece| piece.contains(&address))
    }

    /// Returns all memory in the order of addresses.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Allocation)> {
        self.live
            .iter()
            .map(|(base, allocation)| (*base, allocation))
    }

    /// Reserves address space for `bytes`, rounded up to pages, at a multiple of `align`. It is
    /// lazily backed, readable and writable, and zero.
    pub fn reserve(&mut self, bytes: u64, align: u64) -> Outcome<u64> {
        let (bytes, align) = (round(bytes), align.max(PAGE));
        if let Some(at) = self.space.take(bytes, align) {
            return Ok(at);
        }
        for piece in [RESERVE.max(bytes + align), bytes + align + PAGE] {
            if let Some(start) = map(piece) {
                let usable = start.next_multiple_of(PAGE);
                self.pieces.push(start..start + piece);
                self.space
                    .give(usable, (start + piece - usable) / PAGE * PAGE);
                return self.space.take(bytes, align).ok_or(OUT_OF_MEMORY);
            }
        }
        Err(OUT_OF_MEMORY)
    }

    /// Reserves address space as [`Memory::reserve`] does, for mappings of the program. Large
    /// reservations are unmapped when they are freed.
    pub fn reserve_apart(&mut self, bytes: u64, align: u64) -> Outcome<u64> {
        let (bytes, align) = (round(bytes), align.max(PAGE));
        if bytes < APART {
            return self.reserve(bytes, align);
        }
        let start = map(bytes + align).ok_or(OUT_OF_MEMORY)?;
        let (at, piece) = (start.next_multiple_of(align), start..start + bytes + align);
        self.pieces.push(piece.clone());
        self.apart.insert(at, piece);
        Ok(at)
    }

    /// Reserves address space at a wished address, if it belongs to the driver and is free.
    pub fn reserve_at(&mut self, at: u64, bytes: u64) -> bool {
        at.is_multiple_of(PAGE) && self.space.take_at(at, round(bytes))
    }

    /// Frees address space and discards its contents.
    pub fn unreserve(&mut self, at: u64, bytes: u64) {
        let bytes = round(bytes);
        if let Some(piece) = self.apart.remove(&at) {
            // SAFETY: `map` made the piece, and this was its one reservation.
            unsafe {
                libc::munmap(
                    piece.start as *mut libc::c_void,
                    (piece.end - piece.start) as usize,
                )
            };
            self.pieces.retain(|other| *other != piece);
            return;
        }
        // SAFETY: the range lies in memory that `map` made, and no other block holds it.
        unsafe { libc::madvise(at as *mut libc::c_void, bytes as usize, libc::MADV_DONTNEED) };
        self.space.give(at, bytes);
    }
}

/// Rounds bytes up to whole pages, at least one.
pub fn round(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(PAGE)
}

/// Maps new address space; none if the system refuses.
fn map(bytes: u64) -> Option<u64> {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes as usize,
            protection,
            flags,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping that was just made. Terabytes of it have no place in a core dump.
    unsafe { libc::madvise(at, bytes as usize, libc::MADV_DONTDUMP) };
    Some(at as u64)
}

/// Opens the record of memory that all processes have taken, if `STANDIN_SHARED` is set.
fn shared() -> Option<Shared> {
    Shared::open(settings().shared.as_ref()?)
}

impl State {
    /// Adds `bytes` to the use of a device's memory. Fails if the device has no room for them.
    pub fn charge(&mut self, device: i32, bytes: u64) -> Outcome {
        let shared = shared();
        let others = shared.as_ref().map_or(0, |shared| shared.others(device));
        let of = self.device(device)?;
        match of.used.checked_add(bytes) {
            Some(used) if used.saturating_add(others) <= of.total => {
                of.used = used;
                of.peak = of.peak.max(used);
                if let Some(shared) = shared {
                    shared.note(device, used);
                }
                Ok(())
            }
            _ => Err(OUT_OF_MEMORY),
        }
    }

    /// Returns the bytes of a device's memory that no process has taken.
    pub fn free_memory(&mut self, device: i32) -> Outcome<u64> {
        let others = shared().map_or(0, |shared| shared.others(device));
        let device = self.device(device)?;
        Ok(device.total.saturating_sub(device.used + others))
    }

    /// Reverses [`State::charge`] for `bytes`.
    pub fn refund(&mut self, device: i32, bytes: u64) {
        if let Ok(of) = self.device(device) {
            of.used = of.used.saturating_sub(bytes);
            if let Some(shared) = shared() {
                shared.note(device, of.used);
            }
        }
    }

    /// Allocates memory of a context's device, packed as the real driver packs it. Managed memory
    /// takes none of the device's until a kernel touches it, which is not modelled.
    pub fn allocate(&mut self, context: u64, bytes: u64, kind: Kind, flags: u32) -> Outcome<u64> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let device = self.contexts.get(context)?.device;
        if bytes > self.device(device)?.total {
            return Err(OUT_OF_MEMORY);
        }
        let (base, spacing) = match bytes <= SMALL {
            _ if kind == Kind::Managed => (self.memory.reserve(bytes, PAGE)?, round(bytes)),
            true => {
                let spacing = bytes.next_multiple_of(SPACING);
                (self.allocate_small(context, device, spacing)?, spacing)
            }
            false => {
                let spacing = round(bytes);
                self.charge(device, spacing)?;
                let base = self.memory.reserve(spacing, PAGE);
                (base.inspect_err(|_| self.refund(device, spacing))?, spacing)
            }
        };
        let allocation = Allocation {
            size: bytes,
            spacing,
            context,
            device,
            kind,
            flags,
            id: 0,
            on_free: None,
        };
        self.memory.insert(base, allocation);
        Ok(base)
    }

    /// Returns the address of a small block, which lies in one page. Of the driver that is assumed.
    fn allocate_small(&mut self, context: u64, device: i32, spacing: u64) -> Outcome<u64> {
        if let Some(at) = self
            .memory
            .small
            .entry(context)
            .or_default()
            .take_within(spacing, SPACING, PAGE)
        {
            return Ok(at);
        }
        self.charge(device, PAGE)?;
        let page = self
            .memory
            .reserve(PAGE, PAGE)
            .inspect_err(|_| self.refund(device, PAGE))?;
        let room = self.memory.small.entry(context).or_default();
        room.give(page, PAGE);
        room.take_within(spacing, SPACING, PAGE)
            .ok_or(OUT_OF_MEMORY)
    }

    /// Frees memory that [`State::allocate`] made. The caller has waited for its work.
    pub fn release(&mut self, base: u64) -> Outcome {
        let allocation = self.memory.remove(base).ok_or(INVALID_VALUE)?;
        self.model.forget(base..base + allocation.spacing);
        if allocation.kind == Kind::Managed {
            self.memory.unreserve(base, allocation.spacing);
            return Ok(());
        }
        if allocation.size > SMALL {
            self.memory.unreserve(base, allocation.spacing);
            self.refund(allocation.device, allocation.spacing);
            return Ok(());
        }
        let room = self.memory.small.entry(allocation.context).or_default();
        let (start, size) = room.give(base, allocation.spacing);
        // Whole pages that are free now return to the device.
        let (first, end) = (start.next_multiple_of(PAGE), (start + size) / PAGE * PAGE);
        if first < end && room.take_at(first, end - first) {
            self.memory.unreserve(first, end - first);
            self.refund(allocation.device, end - first);
        }
        Ok(())
    }
}

/// Frees the memory of a destroyed context.
pub fn context_gone(state: &mut State, context: u64, device: i32) {
    let own = |kind| {
        use Kind::*;
        matches!(kind, Device | Managed | Array | Graph | Host | Registered)
    };
    let gone: Vec<(u64, Kind)> = state
        .memory
        .iter()
        .filter(|(_, allocation)| allocation.context == context && own(allocation.kind))
        .map(|(base, allocation)| (base, allocation.kind))
        .collect();
    for (base, kind) in gone {
        let _ = match kind {
            Kind::Host | Kind::Registered => crate::host::release(state, base),
            Kind::Graph => crate::graph_memory::release(state, base),
            _ => state.release(base),
        };
    }
    // Pending frees on streams of this memory are dropped: the addresses may be other memory by
    // then.
    state.forget_dead();
    debug_assert!(state.device(device).is_ok());
    state.memory.small.remove(&context);
}
