//! Release of cached memory to the driver: all of it, or a part.

use rustc_hash::FxHashSet;

use crate::replay::caching::Memory;
use crate::replay::heap::Piece;
use crate::replay::torch::{Torch, range};

impl Torch {
    /// Releases free segments, and free pages of expandable segments. Of the private pools that are
    /// still in use, only named segments are released.
    ///
    /// `named` are the segments that were released in the recording. If all of them are free here,
    /// no others are released, since the original call may have released only a part.
    pub(super) fn release_all(&mut self, memory: &mut Memory, named: &[(u64, u64)]) -> bool {
        let names: FxHashSet<u64> = named.iter().map(|(address, _)| *address).collect();
        let free = memory.heap.free();
        let is_named =
            |memory: &Memory, piece: &Piece| names.contains(&memory.heap.address(*piece));
        let segments = free.iter().filter(|piece| memory.heap.is_region(**piece));
        let known: Vec<Piece> = segments
            .clone()
            .filter(|piece| is_named(memory, piece))
            .copied()
            .collect();
        let only_those = !names.is_empty() && known.len() == names.len();
        let goes = |piece: &Piece| {
            let group = self.of(memory.heap.group(*piece));
            is_named(memory, piece) || (group.pool == 0 && !only_those)
        };
        let going: Vec<Piece> = segments.copied().filter(goes).collect();
        let mut some = !going.is_empty();
        for piece in going {
            self.release(memory, piece);
        }
        for piece in free {
            let number = memory.heap.group(piece);
            let group = self.of(number);
            if only_those || !self.expands(group) || !memory.heap.is_free(piece) {
                continue;
            }
            let Some(base) = self.ranges.get(&number).copied() else {
                continue;
            };
            let inside = |(address, _): &(u64, u64)| {
                (base..base.saturating_add(range::BYTES)).contains(address)
            };
            if group.pool == 0 || named.iter().any(inside) {
                some |= range::unmap(memory, piece, base, range::page(group.is_large)) > 0;
            }
        }
        some
    }

    fn release(&mut self, memory: &mut Memory, segment: Piece) -> u64 {
        let bytes = memory.heap.bytes(segment);
        memory.heap.drop_region(segment);
        memory.device.release(bytes);
        self.freed.remove(&segment);
        bytes
    }

    /// Releases blocks that are too large to be split, if `max_split_size_mb` is set. It releases
    /// the smallest block that is large enough. Without one it releases the largest blocks until
    /// their sum is enough.
    pub(super) fn release_some(&mut self, memory: &mut Memory, group: u32, bytes: u64) -> bool {
        let least = self.options.max_split;
        if least == u64::MAX {
            return false;
        }
        let heap = &memory.heap;
        let wanted = bytes.max(least);
        let whole = heap
            .fitting(group, wanted)
            .find(|piece| heap.is_region(*piece));
        if let Some(piece) = whole {
            self.release(memory, piece);
            return true;
        }
        let mut released = 0_u64;
        while released < wanted
            && let Some(piece) = memory.heap.largest(group)
            && memory.heap.bytes(piece) >= least
            && memory.heap.is_region(piece)
        {
            released = released.saturating_add(self.release(memory, piece));
        }
        released >= wanted
    }

    /// Releases free segments that were unused for long, under `garbage_collection_threshold`. It
    /// does so while the held memory exceeds that share of the limit. Each round releases the
    /// segments of at least the mean age. Only large segments of the default pools are released.
    pub(super) fn collect(&mut self, memory: &mut Memory) {
        let (part, limit) = (self.options.collect_above, memory.device.capacity());
        let allowed = (limit as f64 * part) as u64;
        if part <= 0.0 || memory.device.held <= allowed {
            return;
        }
        let mut too_much = memory.device.held - allowed;
        let free = memory.heap.free().into_iter();
        let large = free.filter(|piece| {
            let group = self.of(memory.heap.group(*piece));
            memory.heap.is_region(*piece) && group.is_large && group.pool == 0
        });
        let mut old: Vec<(u64, Piece)> = large
            .map(|piece| {
                let since = self.freed.get(&piece).copied().unwrap_or(self.looks);
                (self.looks.saturating_sub(since), piece)
            })
            .collect();
        while too_much > 0 && !old.is_empty() {
            let ages: u64 = old.iter().map(|(age, _)| *age).sum();
            let mean = ages / old.len() as u64;
            let (go, stay): (Vec<_>, Vec<_>) = old.into_iter().partition(|(age, _)| *age >= mean);
            for (_, piece) in go {
                too_much = too_much.saturating_sub(self.release(memory, piece));
            }
            old = stay;
        }
    }
}
