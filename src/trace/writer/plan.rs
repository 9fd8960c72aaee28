//! Where the parts of a file lie whose size the options decide, and views of them.

use std::mem::size_of;
use std::sync::atomic::AtomicU64;

use memmap2::MmapRaw;

use super::{CHUNKS_AT, WriterOptions, chunks};
use crate::trace::layout::{PartKind, live, totals};
use crate::trace::live::{Group, Live};
use crate::trace::totals::{Stripe, Tally};

/// An entry of the parts directory: kind, offset, bytes, stride.
type Part = (PartKind, u64, u64, usize);

/// Offsets and sizes, bytes.
#[derive(Debug)]
pub struct Plan {
    pub ring_bytes: u64,
    totals_at: u64,
    live_at: u64,
    live_bytes: u64,
    /// The ring is the last part.
    pub ring_at: u64,
}

const TOTALS_BYTES: u64 = (totals::STRIPES * totals::STRIPE_BYTES) as u64;

const _: () = assert!(size_of::<Stripe<AtomicU64>>() == totals::STRIPE_BYTES);
const _: () = assert!(size_of::<Group<AtomicU64>>() == live::GROUP_BYTES);

/// The fewest and the most blocks of a live table, and the most that nobody asked for.
const BLOCKS_LEAST: u64 = 1024;
const BLOCKS_MOST: u64 = 1 << 26;
const BLOCKS_DEFAULT: u64 = 131_072;

/// On a page.
const fn after(at: u64, bytes: u64) -> u64 {
    (at + bytes).next_multiple_of(4096)
}

impl Plan {
    pub fn of(options: &WriterOptions) -> Plan {
        let ring_bytes = options.ring_bytes();
        let events = ring_bytes / crate::trace::layout::RECORD_BYTES as u64;
        let blocks = match options.live_blocks {
            Some(blocks) => blocks.min(BLOCKS_MOST),
            None => (events / 8).min(BLOCKS_DEFAULT),
        };
        let groups = blocks.max(BLOCKS_LEAST).div_ceil(live::KEYS as u64);
        let live_bytes = live::HEAD_BYTES as u64 + groups * live::GROUP_BYTES as u64;
        let totals_at = after(CHUNKS_AT, chunks(ring_bytes) * 8);
        let live_at = after(totals_at, TOTALS_BYTES);
        Plan {
            ring_bytes,
            totals_at,
            live_at,
            live_bytes,
            ring_at: after(live_at, live_bytes),
        }
    }

    pub fn file_bytes(&self) -> u64 {
        self.ring_at + self.ring_bytes
    }

    pub fn totals_part(&self) -> Part {
        let stride = totals::STRIPE_BYTES;
        (PartKind::Totals, self.totals_at, TOTALS_BYTES, stride)
    }

    pub fn live_part(&self) -> Part {
        let stride = live::GROUP_BYTES;
        (PartKind::Live, self.live_at, self.live_bytes, stride)
    }

    /// The totals within a mapping.
    pub fn tally(&self, map: &MmapRaw) -> Option<Tally<'static, AtomicU64>> {
        // SAFETY: stripes are words that are only ever accessed atomically. The view lives in the same
        // `Mapped` as the mapping, is dropped before it, and never leaves it.
        let stripes = unsafe { slice(map, self.totals_at, totals::STRIPES) };
        stripes.map(Tally::new)
    }

    /// The live table within a mapping.
    pub fn live(&self, map: &MmapRaw) -> Option<Live<'static, AtomicU64>> {
        let first = live::HEAD_BYTES as u64;
        let groups = (self.live_bytes - first) as usize / live::GROUP_BYTES;
        // SAFETY: both are words that are only ever accessed atomically. The view lives in the same
        // `Mapped` as the mapping, is dropped before it, and never leaves it.
        let (missed, groups) = unsafe {
            let missed = slice(map, self.live_at + live::MISSED as u64, 1)?;
            (missed, slice(map, self.live_at + first, groups)?)
        };
        Some(Live::new(missed.first()?, groups))
    }
}

/// As many values as asked for at an offset of a mapping; `None` if they do not lie within it.
///
/// # Safety
/// The values are made of atomic words alone, and the slice is not used after the mapping is gone.
unsafe fn slice<T>(map: &MmapRaw, at: u64, count: usize) -> Option<&'static [T]> {
    let at = usize::try_from(at).ok()?;
    let end = count.checked_mul(size_of::<T>())?.checked_add(at)?;
    if end > map.len() || !at.is_multiple_of(align_of::<T>()) {
        return None;
    }
    // SAFETY: they lie within the mapping and are aligned, because it starts on a page; any bits are a
    // valid word; the caller answers for the rest.
    Some(unsafe { std::slice::from_raw_parts(map.as_ptr().add(at).cast::<T>(), count) })
}
