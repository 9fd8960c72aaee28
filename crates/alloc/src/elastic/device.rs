//! The elastic segments of one device.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::memory::Memories;
use super::open_captures::OpenCaptures;
use super::pages::{PAGE, Pages};
use super::request::Wanted;
use super::state::State;
use super::types::{Allocation, Found, Mode, Stats, Trouble};
use crate::driver::Driver;
use crate::handles::Context;
use crate::policy::TICKS_TO_DECAY;
use crate::rules;

/// Most pieces of memory that are freed while the lock is held once.
const AT_ONCE: usize = 32;

/// Segments whose pages get memory when tensors need it; see the [module](super).
///
/// The lock and the start of the state share a line of the processor's cache.
#[repr(C, align(64))]
pub struct Elastic<D: Driver> {
    state: Mutex<State<D>>,
    pages: Pages<D>,
    captures: Arc<OpenCaptures>,
}

impl<D: Driver> Elastic<D> {
    /// Creates it without segments, on a device and in a context of that device.
    pub fn new(driver: D, (device, context): (i32, Context), mode: Mode) -> Self {
        let captures = Arc::default();
        Elastic {
            pages: Pages::new(driver, device, context),
            state: Mutex::new(State::new(mode, Arc::clone(&captures))),
            captures,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<D>> {
        self.state.lock()
    }

    /// Returns the device and its driver.
    pub fn pages(&self) -> &Pages<D> {
        &self.pages
    }

    /// Gives memory to the pages of a tensor that the allocator above hands out next.
    /// - `total`: bytes of all live tensors of the device with this one, as the allocator counts
    ///   them.
    /// - `stream`: number of the stream that orders all work of the tensor until its end, if it is
    ///   known.
    pub fn allocated(
        &self,
        address: u64,
        bytes: u64,
        total: u64,
        stream: Option<u8>,
    ) -> Allocation {
        let mut state = self.lock();
        state.allocated(&self.pages, address, bytes, total, stream)
    }

    /// Notes that the allocator above took a tensor back. Returns the first error in the
    /// announcements, once.
    /// - `total`: bytes of the tensors that are still live.
    /// - `is_elsewhere`: work of other streams may use the tensor, and is not ordered before later
    ///   work of its own stream.
    pub fn freed(
        &self,
        address: u64,
        bytes: u64,
        total: u64,
        is_elsewhere: bool,
    ) -> Option<Trouble> {
        let mut state = self.lock();
        state.freed(&self.pages, address, bytes, total, is_elsewhere)
    }

    /// Pins the segment of an address, as others may access it without a tensor there. All its
    /// mapped pages get memory and keep it. False if there is not enough memory.
    pub fn pin(&self, address: u64) -> bool {
        let mut state = self.lock();
        let Some(segment) = state.segments.around(address) else {
            return true;
        };
        let (base, pages) = (segment.base, segment.all());
        let is_pinned = rules::pins_exports();
        if let Some(segment) = state.segments.get_mut(base) {
            segment.is_pinned |= is_pinned;
        }
        let backed = state.supply(&self.pages, base, pages, Wanted::UNNEEDED);
        if let Some(segment) = state.segments.get_mut(base) {
            let pieces = segment.pieces_mut();
            pieces.for_each(|piece| piece.is_pinned |= is_pinned);
        }
        backed.missing == 0
    }

    /// Notes that a stream is about to capture, under a number that no other capture has. Tensors
    /// that live at any time until the capture ends keep their memory.
    pub fn capture_began(&self, capture: u64) {
        self.lock().capture_began(&self.pages, capture);
    }

    /// Notes that a capture has ended, or did not begin. Does not wait for other calls: the caller
    /// may hold a lock that the driver's calls need.
    pub fn capture_ended(&self, capture: u64) {
        self.captures.ended(capture);
    }

    /// Gives at least this many bytes of spare memory back to the driver, or all that it can. With
    /// `waits`, waits for the work on it. Waits for other threads up to `patience`. Returns the
    /// bytes.
    pub fn give_back(&self, bytes: u64, waits: bool, patience: Duration) -> u64 {
        let Some(mut state) = self.state.try_lock_for(patience) else {
            return 0;
        };
        state.release_idle();
        let mut given = 0;
        while given < bytes {
            if let Some(bytes) = state.give_back_first(&self.pages, u64::MAX) {
                given += bytes;
                continue;
            }
            state.look(&self.pages);
            if let Some(bytes) = state.give_back_first(&self.pages, u64::MAX) {
                given += bytes;
            } else if !waits || state.is_off || !state.has_spare() || !state.wait(&self.pages) {
                break;
            }
        }
        given
    }

    /// Gives about this many bytes of spare memory back to the driver, for another process. Waits
    /// for no work. An announcement waits for a small part of it only. Returns the bytes.
    pub fn give_complete(&self, bytes: u64, patience: Duration) -> u64 {
        if let Some(mut state) = self.state.try_lock_for(patience) {
            state.release_idle();
            state.look(&self.pages);
        }
        let mut given = 0;
        while given < bytes
            && let Some(more) = self.give_back_some(u64::MAX)
        {
            given += more;
        }
        given
    }

    /// Counts a tick. Memory that was spare for [`TICKS_TO_DECAY`] ticks is given back to the
    /// driver. Returns the bytes given back.
    pub fn decay(&self) -> u64 {
        let mut given = 0;
        if let Some(before) = self.tick() {
            while let Some(bytes) = self.give_back_some(before) {
                given += bytes;
            }
        }
        given
    }

    /// Returns the clock as it was [`TICKS_TO_DECAY`] ticks ago. `None`: nothing decays now.
    fn tick(&self) -> Option<u64> {
        let mut state = self.state.try_lock()?;
        if state.is_off || state.is_capturing() {
            return None;
        }
        state.look(&self.pages);
        let clock = state.clock;
        state.ticks.push_back(clock);
        state.may_keep_idle();
        let is_long = state.ticks.len() > TICKS_TO_DECAY as usize;
        let before = is_long.then(|| state.ticks.pop_front())??;
        state.release_left_until(before);
        Some(before)
    }

    /// Gives back up to [`AT_ONCE`] pieces of memory that were left at this time or before.
    /// Announcements wait meanwhile. `None`: none was given back.
    fn give_back_some(&self, before: u64) -> Option<u64> {
        let mut state = self.state.try_lock()?;
        let mut next = || state.give_back_first(&self.pages, before);
        let given: Vec<u64> = std::iter::from_fn(&mut next).take(AT_ONCE).collect();
        (!given.is_empty()).then(|| given.iter().sum())
    }

    /// Lets another device access the memory, or no longer. Calls nothing if nothing changes.
    ///
    /// # Errors
    /// The driver's; some pages may have changed.
    pub fn change_access(&self, other: i32, is_allowed: bool) -> Result<(), D::Error> {
        let mut others = self.lock().others.clone();
        if others.contains(&other) == is_allowed {
            return Ok(());
        }
        others.retain(|one| *one != other);
        others.extend(is_allowed.then_some(other));
        self.set_access(others)
    }

    /// Lets these other devices access the memory, and no others.
    ///
    /// # Errors
    /// The driver's; some pages may have changed.
    pub fn set_access(&self, others: Vec<i32>) -> Result<(), D::Error> {
        let mut state = self.lock();
        let before = mem::replace(&mut state.others, others);
        let changed = self.set_access_of_all(&state, &before);
        if changed.is_err() {
            // A repeated request must reach the driver.
            state.others = before;
        }
        changed
    }

    fn set_access_of_all(&self, state: &State<D>, before: &[i32]) -> Result<(), D::Error> {
        let goes = |other: &i32| !state.others.contains(other);
        let gone: Vec<i32> = before.iter().copied().filter(goes).collect();
        for segment in state.segments.values() {
            for (first, piece) in segment.pieces() {
                let (address, bytes) = (segment.address(first), piece.pages() as u64 * PAGE);
                self.pages.allow(address, bytes, &state.others)?;
                if !gone.is_empty() {
                    self.pages.forbid(address, bytes, &gone)?;
                }
            }
        }
        Ok(())
    }

    /// Finds the segment around an address.
    pub fn find(&self, address: u64) -> Option<Found> {
        self.lock().find(address)
    }

    /// Pieces of memory of the segment around an address, for other processes: the address of each,
    /// and its bytes, in the order of addresses. They stay as long as the segment. There are gaps
    /// where a range is not mapped. `None`: the segment was not pinned, or is in part in memory of
    /// the host.
    pub fn backing(&self, address: u64) -> Option<(Found, Vec<(u64, u64)>)> {
        let state = self.lock();
        Some((state.find(address)?, state.backing(address)?))
    }

    #[cfg(test)]
    pub(super) fn keeps_idle(&self) -> bool {
        self.lock().keeps_idle
    }

    /// Returns the state of the segments.
    pub fn stats(&self) -> Stats {
        self.lock().stats()
    }

    /// Returns [`Elastic::stats`], or `None` while another thread holds the lock.
    pub fn stats_now(&self) -> Option<Stats> {
        Some(self.state.try_lock()?.stats())
    }

    /// Removes all segments and ranges, as their context has ended with all work in it.
    pub fn end(&self) {
        let mut state = self.lock();
        state.fences.clear(&self.pages);
        let all: Vec<u64> = state
            .segments
            .values()
            .map(|segment| segment.base)
            .collect();
        all.into_iter()
            .for_each(|base| self.remove(&mut state, base));
        // Memory that the driver refused to unmap ends with the process.
        state.memories = Memories::new();
    }
}
