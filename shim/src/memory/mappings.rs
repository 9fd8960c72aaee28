//! Driver allocations of stream-ordered pools as mappings of their own.
//!
//! Stream-ordered memory belongs to a device and survives the end of every context, the primary one's too
//! (measured on an H100). An allocation of `cuMemAlloc` ends with its context; a mapping does not. What is
//! smaller than a mapping can be shares one with others of its pool.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gpushim_alloc::stream_pool::Driver;

use crate::cuda::device::Cuda;
use crate::cuda::devices;
use crate::cuda::types::CUresult;
use crate::memory::physical;

/// Bytes of the smallest mapping, and what all are multiples of.
const PAGE: u64 = 2 << 20;
/// Bytes of the smallest part of a shared mapping.
const UNIT: u64 = 512;
/// Requests up to this many bytes share mappings.
const SMALL: u64 = 1 << 20;
/// Words of 64 bits, one bit for each unit of a shared mapping.
const WORDS: usize = (PAGE / UNIT / 64) as usize;

/// One mapping.
struct Mapping {
    bytes: u64,
    /// The physical memory behind it.
    handle: u64,
    /// The pool whose parts share it, by its address; 0 if it is one allocation.
    pool: u64,
    /// Units that are handed out.
    taken: [u64; WORDS],
}

static MAPPINGS: Mutex<BTreeMap<u64, Mapping>> = Mutex::new(BTreeMap::new());

/// Devices on which mappings were refused, one bit each.
static REFUSED: AtomicU64 = AtomicU64::new(0);

fn bit(device: i32) -> u64 {
    1 << (device.unsigned_abs() % 64)
}

/// Whether the driver allocations of a device's pools are mappings.
pub fn serve(device: i32) -> bool {
    devices::has_virtual_memory(device) && REFUSED.load(Ordering::Relaxed) & bit(device) == 0
}

impl Mapping {
    /// The first unit of a run of `units` free units.
    fn room(&self, units: u64) -> Option<u64> {
        let mut run = 0;
        for unit in 0..PAGE / UNIT {
            run = if self.is_taken(unit) { 0 } else { run + 1 };
            if run == units {
                return Some(unit + 1 - units);
            }
        }
        None
    }

    fn is_taken(&self, unit: u64) -> bool {
        self.taken[(unit / 64) as usize] >> (unit % 64) & 1 == 1
    }

    fn mark(&mut self, first: u64, units: u64, taken: bool) {
        for unit in first..first + units {
            let word = &mut self.taken[(unit / 64) as usize];
            *word = *word & !(1 << (unit % 64)) | u64::from(taken) << (unit % 64);
        }
    }

    fn is_unused(&self) -> bool {
        self.taken.iter().all(|word| *word == 0)
    }
}

/// Allocates memory of a device for a pool; `devices` may use it.
///
/// # Errors
/// The driver's.
pub fn allocate(
    driver: &Cuda,
    device: i32,
    pool: u64,
    bytes: u64,
    devices: &[i32],
) -> Result<u64, CUresult> {
    let is_shared = bytes <= SMALL;
    if is_shared && let Some(address) = part(pool, bytes) {
        return Ok(address);
    }
    let mut mapping = Mapping {
        bytes: bytes.next_multiple_of(PAGE),
        handle: 0,
        pool: if is_shared { pool } else { 0 },
        taken: [0; WORDS],
    };
    let address = driver.reserve(device, mapping.bytes);
    let address = address.inspect_err(|error| refused(device, *error, true))?;
    let made = physical::create(device, mapping.bytes);
    let made = made.inspect_err(|error| {
        // If the device has enough free memory, the driver refuses mappings as such.
        refused(device, *error, driver.refuses(device, mapping.bytes));
    });
    let placed = made.and_then(|handle| {
        mapping.handle = handle;
        let placed = driver.map(address, mapping.bytes, handle).and_then(|()| {
            let allowed = driver.allow(address, mapping.bytes, devices);
            allowed.inspect_err(|_| {
                let _ = driver.unmap(address, mapping.bytes);
            })
        });
        placed.inspect_err(|error| {
            physical::destroy(handle);
            refused(device, *error, driver.has_plenty(device, mapping.bytes));
        })
    });
    if let Err(error) = placed {
        driver.unreserve(address, mapping.bytes);
        return Err(error);
    }
    if is_shared {
        mapping.mark(0, bytes.div_ceil(UNIT), true);
    }
    if let Ok(mut mappings) = MAPPINGS.lock() {
        mappings.insert(address, mapping);
    }
    Ok(address)
}

/// A call about a mapping failed. If that was for the want of memory, it is a refusal where memory is `there`.
fn refused(device: i32, error: CUresult, there: bool) {
    if Cuda::is_refusal(error) || there && Cuda::is_out_of_memory(error) {
        REFUSED.fetch_or(bit(device), Ordering::Relaxed);
    }
}

/// A part of a mapping that is there.
fn part(pool: u64, bytes: u64) -> Option<u64> {
    let mut mappings = MAPPINGS.lock().ok()?;
    let units = bytes.div_ceil(UNIT);
    let mut of_pool = mappings.iter_mut().filter(|(_, one)| one.pool == pool);
    of_pool.find_map(|(base, mapping)| {
        let first = mapping.room(units)?;
        mapping.mark(first, units, true);
        Some(base + first * UNIT)
    })
}

/// Frees memory that no work uses. `None`: it did not come from [`allocate`].
pub fn release(driver: &Cuda, address: u64, bytes: u64) -> Option<Result<(), CUresult>> {
    let mut mappings = MAPPINGS.lock().ok()?;
    let (&base, mapping) = mappings.range_mut(..=address).next_back()?;
    if address >= base + mapping.bytes {
        return None;
    }
    let (first, units) = ((address - base) / UNIT, bytes.div_ceil(UNIT));
    if mapping.pool != 0 {
        mapping.mark(first, units, false);
        if !mapping.is_unused() {
            return Some(Ok(()));
        }
    }
    let mut mapping = mappings.remove(&base)?;
    drop(mappings);
    let unmapped = driver.unmap(base, mapping.bytes);
    if unmapped.is_ok() {
        physical::destroy(mapping.handle);
        driver.unreserve(base, mapping.bytes);
    } else {
        if mapping.pool != 0 {
            mapping.mark(first, units, true);
        }
        if let Ok(mut mappings) = MAPPINGS.lock() {
            mappings.insert(base, mapping);
        }
    }
    Some(unmapped)
}

/// The mapping that contains an address: its first address, and its bytes.
pub fn around(address: u64) -> Option<(u64, u64)> {
    let mappings = MAPPINGS.lock().ok()?;
    let (&base, mapping) = mappings.range(..=address).next_back()?;
    (address < base + mapping.bytes).then_some((base, mapping.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_mapping_do_not_overlap_and_come_back() {
        let mut mapping = Mapping {
            bytes: PAGE,
            handle: 1,
            pool: 1,
            taken: [0; WORDS],
        };
        let mut parts = Vec::new();
        for units in [1, 63, 64, 65, 2048] {
            let first = mapping.room(units).expect("there is room");
            mapping.mark(first, units, true);
            let end = |(first, units): &(u64, u64)| first + units;
            assert_eq!(first, parts.last().map_or(0, end), "next to the one before");
            parts.push((first, units));
        }
        assert_eq!(mapping.room(2048), None, "of 4096 units 2241 are taken");
        let (first, units) = parts.remove(2);
        mapping.mark(first, units, false);
        assert_eq!(mapping.room(64), Some(first));
        for (first, units) in parts {
            mapping.mark(first, units, false);
        }
        assert!(mapping.is_unused());
    }
}
