//! Places of the parts of a file that depend on its size.

use std::sync::atomic::AtomicU64;

use memmap2::MmapRaw;

use super::{PARTS_AT, WriterOptions, chunks};
use crate::layout::{control, live, totals};
use crate::{jit, modules, sites, stacks, strings, timeline};

/// A part: offset and length. Both are multiples of a page, except the length of the chunks.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub at: u64,
    pub length: u64,
}

impl Place {
    /// The words of the part; `None` if it is not all within the mapping.
    ///
    /// # Safety
    /// The mapping must live longer than what this returns, and the part be accessed atomically
    /// only.
    pub unsafe fn words(self, map: &MmapRaw) -> Option<&'static [AtomicU64]> {
        let at = usize::try_from(self.at).ok()?;
        let length = usize::try_from(self.length).ok()?;
        if !at.is_multiple_of(8) || at.checked_add(length)? > map.len() {
            return None;
        }
        // SAFETY: the words lie within the mapping, which starts on a page, and are aligned; the
        // caller promises the rest.
        Some(unsafe { std::slice::from_raw_parts(map.as_ptr().add(at).cast(), length / 8) })
    }
}

/// The parts after the cursor, in this order. The parts that grow with the ring are the last ones.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub control: Place,
    pub totals: Place,
    pub live: Place,
    pub strings: Place,
    pub stacks: Place,
    pub modules: Place,
    pub jit: Place,
    pub sites: Place,
    pub timeline: Place,
    pub chunks: Place,
    pub ring: Place,
}

const PAGE: u64 = 4096;
/// Largest number of bytes of texts.
const STRINGS_MAX: u64 = 4 << 20;
/// Bytes of the largest number of modules, and of the first record of their part.
const MODULES_MAX: u64 = (8192 + 1) * modules::layout::BYTES as u64;
/// Bytes of the largest number of names of generated code, and of the first records of their part.
const JIT_MAX: u64 = (262_144 + jit::layout::FIRST as u64) * jit::layout::BYTES as u64;

/// Bytes of the largest number of places in source code, and of the first records of their part.
const SITES_MAX: u64 = (65_536 + sites::layout::FIRST as u64) * sites::layout::BYTES as u64;

/// Smallest and largest number of blocks of a live table, and the largest by default. The smallest
/// table has a range of places for one owner.
const BLOCKS_LEAST: u64 = crate::live::RANGE as u64;
const BLOCKS_MOST: u64 = 1 << 26;
const BLOCKS_DEFAULT: u64 = 131_072;

/// Bytes of the live table.
fn live_bytes(options: &WriterOptions) -> u64 {
    let events = options.ring_bytes() / crate::layout::RECORD_BYTES as u64;
    let blocks = match options.live_blocks {
        Some(blocks) => blocks.min(BLOCKS_MOST),
        None => (events / 8).min(BLOCKS_DEFAULT),
    };
    let groups = blocks.max(BLOCKS_LEAST).div_ceil(live::KEYS as u64);
    // As many again for blocks with places of their own.
    live::HEAD_BYTES as u64 + 2 * groups * live::GROUP_BYTES as u64
}

impl Places {
    /// Returns the places in a file with these options.
    pub fn of(options: &WriterOptions) -> Places {
        let ring_bytes = options.ring_bytes();
        let mut end = PARTS_AT;
        let mut next = |length: u64| {
            let at = end;
            end += length.next_multiple_of(PAGE);
            Place { at, length }
        };
        // A small ring calls for a small file.
        let scaled = |most: u64, share: u64| {
            most.min((ring_bytes / share).max(PAGE))
                .next_multiple_of(PAGE)
        };
        let nodes = u64::from(options.stack_nodes) + u64::from(stacks::layout::FIRST);
        Places {
            control: next(control::BYTES as u64),
            totals: next((totals::STRIPES * totals::STRIPE_BYTES) as u64),
            live: next(live_bytes(options)),
            strings: next(scaled(STRINGS_MAX, 4)),
            stacks: next(scaled(nodes * stacks::layout::BYTES as u64, 1)),
            modules: next(scaled(MODULES_MAX, 8)),
            jit: next(scaled(JIT_MAX, 4)),
            sites: next(scaled(SITES_MAX, 4)),
            timeline: next(timeline::BYTES as u64),
            chunks: next(chunks(ring_bytes) * 8),
            ring: next(ring_bytes),
        }
    }

    /// Returns the bytes of the whole file.
    pub fn end(&self) -> u64 {
        self.ring.at + self.ring.length
    }
}

const _: () = assert!(
    STRINGS_MAX / 8 <= u32::MAX as u64,
    "an id is the number of a word"
);
const _: () = assert!(strings::layout::FIRST as u64 * 8 < PAGE);
