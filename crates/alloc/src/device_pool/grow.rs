//! A request that no block at hand answers: fences are made, asked and waited for, and in the end the
//! driver is asked for more.

use super::device::Device;
use super::give_back::Which;
use super::miss::{Miss, Step};
use super::pool::{DevicePool, Guard};
use super::state::State;
use super::thread_cache::Flush;
use super::work::Recorded;
use crate::handles::Context;
use crate::size_class::{PAGE, page_bytes};
use crate::types::{Grant, PATIENCE, Source, UNNUMBERED};
use parking_lot::MutexGuard;

/// How often one request takes back what waits for captures, while others take that from it.
const SCRAPES: u32 = 16;
/// The device's part that is left free: one byte in this many, and at least [`MARGIN_FLOOR`].
const MARGIN_PART: u64 = 100;
const MARGIN_FLOOR: u64 = 256 << 20;

impl<D: Device> DevicePool<D> {
    #[cold]
    pub(super) fn allocate_slowly(
        &self,
        state: &mut Guard<'_, D>,
        context: Context,
        bytes: u64,
    ) -> Result<Grant, D::Error> {
        let serial = self.arena(state, context)?;
        self.settle(state);
        let mut miss = Miss::new(bytes, serial);
        loop {
            match state.step(&mut miss) {
                Step::Done(grant) => return Ok(grant),
                Step::Query(id, events) => {
                    let complete = self.outside(state, |device| {
                        events
                            .iter()
                            .all(|(_, event)| matches!(device.is_complete(*event), Ok(true)))
                    });
                    if complete {
                        state.completed(serial, id);
                    } else {
                        miss.incomplete = id;
                    }
                }
                Step::Record(id, contexts, later, version) => {
                    match self.record(state, serial, id, &contexts, later.as_ref()) {
                        // It was closed just now: it is not worth asking whether it is complete.
                        Recorded::Yes => miss.incomplete = id,
                        Recorded::Ordered => {
                            miss.incomplete = id;
                            if version == state.version {
                                self.ordered(state, serial, id);
                                miss.source = Source::Ordered;
                            }
                        }
                        Recorded::Unsupported => {
                            miss.source = Source::Waited;
                            miss.unfenced = !self.synchronize(state, serial, id, &contexts);
                        }
                        Recorded::Failed => miss.unfenced = true,
                    }
                }
                Step::Order(id, events, contexts, version) => {
                    let done = self.outside(state, |device| {
                        contexts.iter().all(|context| {
                            events
                                .iter()
                                .all(|(_, event)| device.order(*context, *event).is_ok())
                        })
                    });
                    if !done {
                        miss.unfenced = true;
                    } else if version == state.version {
                        self.ordered(state, serial, id);
                        miss.source = Source::Ordered;
                    }
                }
                Step::Wait(id, events) => {
                    let done = self.outside(state, |device| {
                        events.iter().all(|(_, event)| device.wait(*event).is_ok())
                    });
                    if done {
                        state.completed(serial, id);
                        miss.source = Source::Waited;
                    } else {
                        miss.unfenced = true;
                    }
                }
                Step::Grow(size) => {
                    if !std::mem::replace(&mut miss.flushed, true) {
                        self.flush_caches(state, Flush::Idle);
                        continue;
                    }
                    if let Some(grant) = self.grow(state, context, &mut miss, size)? {
                        return Ok(grant);
                    }
                }
                Step::Gone => {
                    let allocate = || self.device.allocate(context, bytes);
                    let address = MutexGuard::unlocked(state, allocate)?;
                    return Ok(Grant {
                        address,
                        requested: bytes,
                        size: bytes,
                        source: Source::Grown,
                        after: state.latest,
                        number: UNNUMBERED,
                    });
                }
            }
        }
    }

    /// One attempt at new memory. `Ok(None)`: something has changed, look again.
    pub(super) fn grow(
        &self,
        state: &mut Guard<'_, D>,
        context: Context,
        miss: &mut Miss,
        size: u64,
    ) -> Result<Option<Grant>, D::Error> {
        let Some(device) = state.arena(miss.arena).map(|arena| arena.device) else {
            return Ok(None);
        };
        let over_share = state.excess(miss, size);
        if over_share > 0 && !miss.loose {
            miss.loose = true;
            return Ok(None);
        }
        if over_share > 0 && !miss.shared {
            miss.shared = true;
            if self.give_back(state, miss.arena, over_share, Which::Any) > 0 {
                return Ok(None);
            }
        }
        match MutexGuard::unlocked(state, || self.device.allocate(context, size)) {
            Ok(address) => {
                let grant = state.grown(miss.arena, address, size, miss.bytes);
                if size >= PAGE {
                    self.keep_margin(state, context, device);
                }
                let (requested, source) = (miss.bytes, Source::Grown);
                // Without its context the block is not kept: its free will be the driver's.
                Ok(Some(grant.unwrap_or(Grant {
                    address,
                    requested,
                    size,
                    source,
                    after: state.latest,
                    number: UNNUMBERED,
                })))
            }
            Err(error) if D::is_out_of_memory(error) => {
                // A larger block will do, before memory goes back.
                if !std::mem::replace(&mut miss.loose, true) {
                    return Ok(None);
                }
                while miss.scraped < 2 {
                    miss.scraped += 1;
                    let wanted = if miss.scraped == 1 { size } else { u64::MAX };
                    if self.give_back_device(state, device, wanted) > 0 {
                        return Ok(None);
                    }
                }
                if self.scrape_some(state, miss, device)
                    || Self::reduce(miss, size)
                    || self.pause(state, miss, device)
                {
                    return Ok(None);
                }
                if let Some(device) = state.device_mut(device) {
                    device.stats.out_of_memory += 1;
                }
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes back what waits for captures, a few times: others take some of it. Whether there may be
    /// more memory for it.
    fn scrape_some(&self, state: &mut Guard<'_, D>, miss: &mut Miss, device: usize) -> bool {
        let Some(ordinal) = state.devices.get(device).map(|device| device.ordinal) else {
            return false;
        };
        miss.given_up += 1;
        if miss.given_up > SCRAPES {
            return false;
        }
        let before = state.devices.get(device).map(|d| d.stats.given_up);
        self.scrape(state, Some(ordinal)) > 0
            || before != state.devices.get(device).map(|d| d.stats.given_up)
    }

    /// Asks for no more than necessary from now on, if that is less.
    pub(super) fn reduce(miss: &mut Miss, size: u64) -> bool {
        let less = !miss.exact && page_bytes(miss.bytes) < size;
        miss.exact |= less;
        less
    }

    /// Waits, once, for memory that other threads are giving back.
    pub(super) fn pause(&self, state: &mut Guard<'_, D>, miss: &mut Miss, device: usize) -> bool {
        let releasing =
            |state: &State<D::Event>| state.devices.get(device).is_some_and(|d| d.releasing > 0);
        if miss.paused || state.captures.is_open() || !releasing(state) {
            return false;
        }
        miss.paused = true;
        self.changed
            .wait_while_for(state, |state| releasing(state), PATIENCE);
        true
    }

    /// Gives cached memory back until the device has its margin.
    pub(super) fn keep_margin(&self, state: &mut Guard<'_, D>, context: Context, device: usize) {
        let info = MutexGuard::unlocked(state, || self.device.memory_info(context));
        if let Ok((free, total)) = info {
            let margin = self
                .margin
                .unwrap_or((total / MARGIN_PART).max(MARGIN_FLOOR));
            if free < margin {
                self.give_back_device(state, device, margin - free);
            }
        }
    }
}
