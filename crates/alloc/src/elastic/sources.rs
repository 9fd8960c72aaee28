//! Sources of memory for pages.

use std::ops::Range;

use super::pages::{Handle, PAGE, Pages};
use super::piece::{self, Piece, SIZES, bytes_of};
use super::request::{Backed, Wanted};
use super::state::State;
use super::types::Mode;
use crate::driver::Driver;
use crate::slab::Id;

impl<D: Driver> State<D> {
    /// Gives memory to pages of a segment: the memory that is mapped at them, or else other.
    pub fn supply(
        &mut self,
        driver: &Pages<D>,
        base: u64,
        pages: Range<usize>,
        wanted: Wanted,
    ) -> Backed {
        let mut backed = self.claim(driver, base, pages.clone(), wanted);
        backed += self.back(driver, base, pages, wanted);
        backed
    }

    /// Gives memory to mapped pages of a segment that have none.
    pub fn back(
        &mut self,
        driver: &Pages<D>,
        base: u64,
        pages: Range<usize>,
        wanted: Wanted,
    ) -> Backed {
        let mut backed = Backed::default();
        let segment = self.segments.get(base);
        let missing = segment.map_or(0, |segment| segment.missing(pages.clone()));
        if missing == 0 {
            return backed;
        }
        let _admission = self.admit(driver, missing as u64 * PAGE);
        // Adjacent pages that are mapped, and not enabled yet.
        let mut run = pages.start..pages.start;
        let mut at = pages.start;
        while let Some(gap) = self.gap(base, at..pages.end) {
            at = gap.start;
            if run.end != at {
                self.enable(driver, base, run, &mut backed);
                run = at..at;
            }
            let fits = match wanted.splits {
                (true, _) if at == pages.start => 1,
                (_, true) if gap.end == pages.end => gap.len() - 1,
                _ => gap.len(),
            };
            let size = wanted.size.min(piece::fitting(fits));
            let Some(id) = self.obtain(driver, Wanted { size, ..wanted }) else {
                backed.missing += 1;
                at += 1;
                if wanted.is_needed {
                    continue;
                }
                // There is no memory for the other pages either.
                break;
            };
            let memory = self.memories.at(id).handle;
            let count = piece::pages_of(memory);
            let address = base + at as u64 * PAGE;
            if driver.map(address, memory).is_err() {
                self.release_unused(driver, id);
                backed.missing += count as u32;
                at += count;
                continue;
            }
            backed.on_host += u32::from(memory.is_host);
            self.memories.at_mut(id).places.push(address);
            self.memories.own(id, address);
            if let Some(segment) = self.segments.get_mut(base) {
                let piece = Piece {
                    memory: id,
                    owns_memory: true,
                    size: piece::size_of(memory) as u8,
                    tensors: segment.tensors_on(at..at + count, wanted.tensors),
                    is_pinned: false,
                    left: 0,
                    stream: wanted.stream,
                };
                segment.put(at, piece);
            }
            at += count;
            run.end = at;
        }
        self.enable(driver, base, run, &mut backed);
        backed
    }

    /// Claims the new memory of a request that lacks this many bytes. Two processes that each get a
    /// part of what is left would both lack the rest.
    fn admit(&self, driver: &Pages<D>, missing: u64) -> Option<D::Admission> {
        let beside_spare = || driver.admit(missing.saturating_sub(self.available()));
        match self.takes_spare_first(missing) {
            true => beside_spare(),
            false => driver.admit(missing).or_else(beside_spare),
        }
    }

    /// True if a request takes spare memory before new memory.
    fn takes_spare_first(&self, bytes: u64) -> bool {
        self.is_short || self.mode == Mode::Least && self.memories.held.exceeds(bytes)
    }

    /// Finds the first run of a segment's mapped pages without memory.
    fn gap(&self, base: u64, pages: Range<usize>) -> Option<Range<usize>> {
        self.segments.get(base)?.gap(pages)
    }

    /// Takes back memory that was obtained for a piece and not used. It is destroyed if it is
    /// mapped nowhere, else spare.
    fn release_unused(&mut self, driver: &Pages<D>, id: Id) {
        if self.memories.at(id).places.is_empty() {
            driver.destroy(self.memories.at(id).handle);
            self.memories.destroyed(id);
        } else {
            // Idle pieces were left before: their memory must enter the lists first.
            self.release_idle();
            self.clock += 1;
            self.memories.release(id, self.clock, None);
        }
    }

    /// Unmaps a piece of a segment that is removed and whose work is complete. False if the driver
    /// refuses.
    pub fn leave_for_good(&mut self, driver: &Pages<D>, address: u64, id: Id) -> bool {
        let memory = self.memories.at_mut(id);
        let (handle, is_own) = (memory.handle, memory.owner == Some(address));
        let is_unmapped = driver.unmap(address, handle).is_ok();
        if is_unmapped {
            memory.places.retain(|place| *place != address);
        }
        if is_own {
            if !self.memories.at(id).places.is_empty() {
                // The memory is spare for its other places. Idle pieces were left before: their
                // memory must enter the lists first.
                self.release_idle();
            }
            self.memories.release(id, self.clock, None);
        }
        let memory = self.memories.at(id);
        if memory.places.is_empty() && memory.owner.is_none() {
            self.destroy(driver, id);
        }
        is_unmapped
    }

    /// Enables access to pages that were mapped. If the driver refuses, they are unmapped again.
    fn enable(&mut self, driver: &Pages<D>, base: u64, run: Range<usize>, backed: &mut Backed) {
        if run.is_empty() {
            return;
        }
        let address = |index: usize| base + index as u64 * PAGE;
        let bytes = run.len() as u64 * PAGE;
        if driver
            .allow(address(run.start), bytes, &self.others)
            .is_ok()
        {
            return;
        }
        backed.missing += run.len() as u32;
        let mut at = run.start;
        while let Some(segment) = self.segments.get_mut(base)
            && let Some((first, piece)) = segment.next_piece(at..run.end)
        {
            let piece = *piece;
            at = first + piece.pages();
            let memory = self.memories.at(piece.memory).handle;
            if driver.unmap(address(first), memory).is_err() {
                continue;
            }
            if let Some(segment) = self.segments.get_mut(base) {
                segment.take(address(first));
            }
            self.memories.disown(piece.memory);
            let memory = self.memories.at_mut(piece.memory);
            memory.places.retain(|place| *place != address(first));
            self.release_unused(driver, piece.memory);
        }
    }

    /// Obtains memory: reused memory, which leaves its list, or new memory. Waits for work if needed.
    /// Falls back to host memory if `wanted.is_needed`.
    fn obtain(&mut self, driver: &Pages<D>, wanted: Wanted) -> Option<Id> {
        let size = wanted.size;
        if self.takes_spare_first(bytes_of(size))
            && let Some(memory) = self.reuse(driver, wanted)
        {
            return Some(memory);
        }
        let new = self.create(driver, size);
        self.is_short = new.is_none();
        if new.is_some() {
            return new;
        }
        if let Some(memory) = self.reuse(driver, wanted) {
            return Some(memory);
        }
        if let Some(memory) = self.create_up_to(driver, size) {
            return Some(memory);
        }
        if driver.make_room()
            && let Some(memory) = self.create_up_to(driver, size)
        {
            return Some(memory);
        }
        while !self.is_off && self.wait(driver) {
            if let Some(memory) = self.reuse(driver, wanted) {
                return Some(memory);
            }
        }
        if driver.make_room_elsewhere(bytes_of(size))
            && let Some(memory) = self.create_up_to(driver, size)
        {
            return Some(memory);
        }
        if !wanted.is_needed {
            return None;
        }
        self.memories.made(Handle {
            number: driver.create_on_host().ok()?,
            bytes: PAGE,
            is_host: true,
        })
    }

    /// Waits for some work. False if there is none that can be waited for.
    pub fn wait(&mut self, driver: &Pages<D>) -> bool {
        let is_capturing = self.is_capturing();
        self.fences.wait(driver, self.clock, is_capturing)
    }

    /// Takes spare memory that may be used now, of this size or smaller.
    fn reuse(&mut self, driver: &Pages<D>, wanted: Wanted) -> Option<Id> {
        if self.is_off {
            return None;
        }
        self.release_idle();
        self.reuse_ready(driver, wanted).or_else(|| {
            self.is_behind();
            self.look(driver);
            self.reuse_ready(driver, wanted)
        })
    }

    /// Finds spare memory of exactly this size that work on `stream` may use.
    fn spare_for(&self, size: usize, stream: Option<u8>) -> Option<Id> {
        let mut all = self.memories.spare_of(size);
        let found = all.find(|(_, memory)| self.may_have(memory, stream));
        found.map(|(id, _)| id)
    }

    fn reuse_ready(&mut self, driver: &Pages<D>, wanted: Wanted) -> Option<Id> {
        let size = wanted.size;
        if let Some(id) = self.spare_for(size, wanted.stream) {
            self.memories.unlink(id);
            self.moves += 1;
            return Some(id);
        }
        // Destroys larger or smaller spare memory, and creates memory of this size instead.
        let mut bytes = 0;
        let others = (size + 1..SIZES).chain((0..size).rev());
        let next = |state: &mut Self| {
            others.clone().find_map(|size| {
                let (id, memory) = state.memories.spare_of(size).next()?;
                let is_over = state.fences.is_over(memory.left);
                is_over.then(|| state.destroy(driver, id))
            })
        };
        while let Some(given) = next(self) {
            bytes += given;
            if bytes >= bytes_of(size)
                && let Some(memory) = self.create(driver, size)
            {
                self.moves += 1;
                return Some(memory);
            }
        }
        let size = size.min(piece::fitting((bytes / PAGE) as usize));
        let memory = (bytes > 0).then(|| self.create_up_to(driver, size))??;
        self.moves += 1;
        Some(memory)
    }

    /// Frees the spare memory that was left first, if it was left at this time or before and its
    /// work is complete. Returns the device's bytes.
    pub fn give_back_first(&mut self, driver: &Pages<D>, before: u64) -> Option<u64> {
        let (id, memory) = self.memories.first_left()?;
        let may_go = !self.is_off && memory.left <= before && self.fences.is_over(memory.left);
        may_go.then(|| self.destroy(driver, id))
    }

    /// Frees spare memory whose work is complete. Returns the device's bytes; 0 if the driver
    /// refuses to unmap it.
    pub fn destroy(&mut self, driver: &Pages<D>, id: Id) -> u64 {
        self.memories.unlink(id);
        let handle = self.memories.at(id).handle;
        while let Some(&place) = self.memories.at(id).places.last() {
            if driver.unmap(place, handle).is_err() {
                // The driver would refuse again now. The piece has the memory again, and a later
                // tick frees it.
                self.own(id, place);
                return 0;
            }
            self.memories.at_mut(id).places.pop();
            if let Some(segment) = self.segments.around_mut(place) {
                segment.take(place);
            }
        }
        let bytes = self.memories.at(id).on_device();
        driver.destroy(handle);
        self.memories.destroyed(id);
        bytes
    }

    /// Creates new memory of this size.
    fn create(&mut self, driver: &Pages<D>, size: usize) -> Option<Id> {
        let bytes = bytes_of(size);
        let number = driver.create(bytes).ok()?;
        self.memories.made(Handle {
            number,
            bytes,
            is_host: false,
        })
    }

    /// Creates new memory of this size, or else of the largest smaller size that there is.
    fn create_up_to(&mut self, driver: &Pages<D>, size: usize) -> Option<Id> {
        (0..=size).rev().find_map(|size| self.create(driver, size))
    }
}
