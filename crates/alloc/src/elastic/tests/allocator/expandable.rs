//! Ranges of the simulated allocator, as PyTorch's expandable segments: mapped and unmapped in
//! chunks.

use super::{Allocator, Block, Device, Is, Owner, Segment};
use crate::driver::Driver;
use crate::elastic::PAGE;
use std::collections::BTreeMap;

/// Bytes of a range. A program may need several for one owner.
const RANGE: u64 = 128 << 20;
const SMALL_CHUNK: u64 = 2 << 20;
const LARGE_CHUNK: u64 = 8 << 20;

impl Segment {
    fn chunk(&self) -> u64 {
        if self.is_small {
            SMALL_CHUNK
        } else {
            LARGE_CHUNK
        }
    }

    /// Finds a place where a free or unmapped block and those that follow have this many bytes.
    fn place(&self, bytes: u64) -> Option<u64> {
        self.parts(false).find_map(|(at, _)| {
            let before = self.blocks.range(..at).next_back();
            let tail = before.filter(|(_, block)| block.is == Is::Free);
            let start = tail.map_or(at, |(at, _)| *at);
            let following = self.blocks.range(start..).map(|(_, block)| block);
            let usable = following.take_while(|block| matches!(block.is, Is::Free | Is::Unmapped));
            let room: u64 = usable.map(|block| block.bytes).sum();
            (room >= bytes).then_some(start)
        })
    }

    /// Changes a part of a block.
    fn set(&mut self, address: u64, bytes: u64, is: Is) {
        let before = self.blocks.range(..=address).next_back();
        let start = *before.expect("a block").0;
        let old = self.blocks.remove(&start).expect("a block");
        let (end, old_end) = (address + bytes, start + old.bytes);
        let parts = [
            (start, address - start, old.is.clone()),
            (address, bytes, is),
            (end, old_end - end, old.is),
        ];
        for (at, bytes, is) in parts.into_iter().filter(|(_, bytes, _)| *bytes > 0) {
            self.blocks.insert(at, Block { bytes, is });
        }
        self.merge();
    }

    /// Whole chunks in free blocks: address and bytes.
    fn free_chunks(&self) -> Vec<(u64, u64)> {
        let chunk = self.chunk();
        let free = self.blocks.iter().filter(|(_, block)| block.is == Is::Free);
        let chunks = free.filter_map(|(at, block)| {
            let first = (at - self.base).next_multiple_of(chunk);
            let end = (at - self.base + block.bytes) / chunk * chunk;
            (first < end).then(|| (self.base + first, end - first))
        });
        chunks.collect()
    }
}

impl Allocator {
    /// Maps chunks for a block. Returns its range, its address, and the pages for which there is
    /// memory; 0 if it also has earlier chunks.
    pub(super) fn expand(
        &mut self,
        device: &Device,
        owner: Owner,
        bytes: u64,
        is_small: bool,
    ) -> Option<(usize, u64, u64)> {
        let all = self.segments.iter().enumerate();
        let mut mine = all.filter(|(_, s)| s.owner == owner && s.is_small == is_small);
        let found = mine.find_map(|(n, range)| Some((n, range.place(bytes)?)));
        let (n, start) = match found {
            Some(found) => found,
            None => self.reserve(device, owner, is_small)?,
        };
        let range = &self.segments[n];
        let (chunk, end) = (range.chunk(), start + bytes);
        let within = |(at, bytes): &(u64, u64)| *at < end && at + bytes > start;
        let holes = range.parts(false).filter(within);
        let holes: Vec<(u64, u64)> = holes
            .map(|(at, bytes)| (at, bytes.min((end - at).next_multiple_of(chunk))))
            .collect();
        for (at, bytes) in &holes {
            self.map(device, n, *at, *bytes)?;
        }
        let admitted = match holes[..] {
            [(at, bytes)] if at == start => (bytes - chunk) / PAGE + 1,
            _ => 0,
        };
        Some((n, start, admitted))
    }

    fn reserve(&mut self, device: &Device, owner: Owner, is_small: bool) -> Option<(usize, u64)> {
        let driver = &device.elastic.pages().driver;
        let base = driver.reserve(0, RANGE).ok()?;
        if !device.elastic.add_range(base, RANGE, self.is_trusted) {
            driver.unreserve(base, RANGE);
            return None;
        }
        let nothing = Block {
            bytes: RANGE,
            is: Is::Unmapped,
        };
        self.segments.push(Segment {
            base,
            bytes: RANGE,
            owner,
            is_small,
            blocks: BTreeMap::from([(base, nothing)]),
        });
        Some((self.segments.len() - 1, base))
    }

    /// Maps adjacent chunks: asks for the memory of all first. `None` if not all are mapped.
    fn map(&mut self, device: &Device, range: usize, address: u64, bytes: u64) -> Option<()> {
        let range = &mut self.segments[range];
        let chunk = range.chunk();
        let chunks = || (0..bytes).step_by(chunk as usize);
        if !chunks().all(|before| device.elastic.may_map(before, chunk)) {
            return None;
        }
        let map = |at: &u64| device.elastic.map(address + at, chunk) == Some(true);
        let mapped = chunks().take_while(map).count() as u64 * chunk;
        range.set(address, mapped, Is::Free);
        (mapped == bytes).then_some(())
    }

    /// Unmaps the chunks in free blocks, and removes ranges where nothing is mapped.
    pub(super) fn shrink(&mut self, device: &Device) {
        let Allocator {
            segments, unmapped, ..
        } = self;
        segments.retain_mut(|range| {
            if range.is_kept(device) {
                return true;
            }
            for (at, bytes) in range.free_chunks() {
                device.sim.unpin(at, bytes);
                match device.elastic.unmap(at, bytes) {
                    Some(Ok(())) => {
                        range.set(at, bytes, Is::Unmapped);
                        unmapped.push((at, bytes));
                    }
                    other if !device.fails => {
                        device.sim.note(format!("nothing is unmapped: {other:?}"));
                    }
                    _ => {}
                }
            }
            if range.parts(true).next().is_some() {
                return true;
            }
            match device.elastic.free(range.base, true, |_| ()) {
                None => device.sim.note("a range is not known"),
                Some(Err(_)) => return true,
                // A page may still be mapped there if a call failed.
                Some(Ok(_)) if device.fails => {}
                Some(Ok(_)) => device.elastic.pages().driver.unreserve(range.base, RANGE),
            }
            false
        });
    }
}
