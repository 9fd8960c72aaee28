//! The memory that blocks are cut from: segments of our pools, or the driver's memory below a framework's
//! tensors.

use std::collections::BTreeMap;

use super::walk::{Focus, older};
use crate::recording::Recording;
use gpushim_trace::{Class, Event, Kind, Layer, flags};

/// Memory that was taken as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes.
    pub size: u64,
    /// Device ordinal.
    pub device: u8,
    /// It is the memory of one allocation that the pool only handed on.
    pub whole: bool,
    /// Its address is known to be one: a block was in it.
    pub used: bool,
    /// The handle of its context, 0 if it belongs to none.
    context: u64,
    class: Class,
    pooled: bool,
}

/// What is held at the moment.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    /// The memory below tensors, and not what our pools say.
    is_below: bool,
    device: Option<u8>,
    by_address: BTreeMap<u64, Taken>,
    total: u64,
    /// That which is one allocation each, which nobody keeps when it is freed.
    handed_on: u64,
}

impl Segments {
    /// What was held when the readable events begin. A framework that announces its tensors cuts them from
    /// what it allocates, if the recording has that; else segments are what the recording says.
    pub fn of(recording: &dyn Recording, focus: Focus) -> Segments {
        let is_driver =
            |event: &Event| event.kind == Kind::Alloc && event.class.layer() == Layer::Device;
        let mut segments = Segments {
            is_below: focus.layer == Layer::Tensor
                && recording.events().any(|record| is_driver(&record.event)),
            device: focus.device,
            by_address: BTreeMap::new(),
            total: 0,
            handed_on: 0,
        };
        let first = recording
            .events()
            .next()
            .map_or(u64::MAX, |record| record.ns);
        for block in older(recording.live().unwrap_or_default(), first) {
            segments.feed(&block.event);
        }
        segments
    }

    /// Bytes held.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes held by whoever keeps what is freed: the pool, or the framework.
    pub fn cached(&self) -> u64 {
        if self.is_below {
            self.total
        } else {
            self.total.saturating_sub(self.handed_on)
        }
    }

    /// By address, in its order; of those below tensors the ones that had any.
    pub fn held(&self) -> impl Iterator<Item = (u64, Taken)> + '_ {
        let all = self.by_address.iter().map(|(at, taken)| (*at, *taken));
        all.filter(|(_, taken)| !self.is_below || taken.used)
    }

    /// A block lies at this address: what it is cut from is known to be used for such.
    pub fn uses(&mut self, address: u64) {
        let before = self.by_address.range_mut(..=address).next_back();
        if let Some((at, taken)) = before
            && address - at < taken.size
        {
            taken.used = true;
        }
    }

    /// Takes an event into account.
    pub fn feed(&mut self, event: &Event) {
        if event.result != 0 {
            return;
        }
        let is_pooled = event.flags & flags::FORWARDED == 0;
        let is_memory = match event.class {
            // The handle of what is mapped elsewhere is no address; the mapping is.
            Class::Vmm => !self.is_below,
            Class::VmmMap => self.is_below,
            class => class.layer() == Layer::Device,
        };
        match event.kind {
            Kind::Reserve if !self.is_below => self.take(event, event.size, is_pooled),
            Kind::Alloc if is_memory && (self.is_below || !is_pooled) => {
                let size = event.cost().block.max(event.size);
                self.take(event, size, is_pooled);
            }
            Kind::Release if !self.is_below => self.give(event.address, false),
            Kind::Free if is_memory => self.give(event.address, true),
            Kind::ContextGone => self.context_gone(event),
            _ => {}
        }
    }

    fn take(&mut self, event: &Event, size: u64, pooled: bool) {
        if (self.device).is_some_and(|one| event.device != one && event.device != Event::NO_DEVICE)
        {
            return;
        }
        let is_segment = event.kind == Kind::Reserve;
        let taken = Taken {
            size,
            device: event.device,
            whole: !is_segment,
            used: false,
            context: if is_segment { event.extra[0] } else { 0 },
            class: event.class,
            pooled,
        };
        if let Some(before) = self.by_address.insert(event.address, taken) {
            self.forget(&before);
        }
        self.total = self.total.saturating_add(size);
        if taken.whole {
            self.handed_on = self.handed_on.saturating_add(size);
        }
    }

    fn give(&mut self, address: u64, whole: bool) {
        let is_it = |taken: &&Taken| taken.whole == whole;
        if let Some(taken) = self.by_address.get(&address).filter(is_it).copied() {
            self.by_address.remove(&address);
            self.forget(&taken);
        }
    }

    fn forget(&mut self, taken: &Taken) {
        self.total = self.total.saturating_sub(taken.size);
        if taken.whole {
            self.handed_on = self.handed_on.saturating_sub(taken.size);
        }
    }

    /// With a context goes what was taken in it. Allocations do not name theirs: they are its own if together
    /// they are no more than it had.
    fn context_gone(&mut self, event: &Event) {
        let is_there =
            |taken: &Taken| event.device == Event::NO_DEVICE || taken.device == event.device;
        let is_ours = |taken: &Taken| {
            let is_mapping = taken.class == Class::VmmMap;
            taken.whole && taken.pooled && !is_mapping && is_there(taken)
        };
        let ours = self.by_address.values().filter(|taken| is_ours(taken));
        let bytes = ours.fold(0_u64, |sum, taken| sum.saturating_add(taken.size));
        let all = bytes <= event.size;
        let is_gone = |taken: &Taken| {
            let is_of_it = taken.context != 0 && taken.context == event.address;
            is_of_it || all && is_ours(taken)
        };
        let kept = std::mem::take(&mut self.by_address).into_iter();
        let (gone, kept): (Vec<_>, BTreeMap<u64, Taken>) = partition(kept, is_gone);
        self.by_address = kept;
        gone.iter().for_each(|taken| self.forget(taken));
    }
}

fn partition(
    all: impl Iterator<Item = (u64, Taken)>,
    is_gone: impl Fn(&Taken) -> bool,
) -> (Vec<Taken>, BTreeMap<u64, Taken>) {
    let (gone, kept): (Vec<_>, Vec<_>) = all.partition(|(_, taken)| is_gone(taken));
    let gone = gone.into_iter().map(|(_, taken)| taken);
    (gone.collect(), kept.into_iter().collect())
}
