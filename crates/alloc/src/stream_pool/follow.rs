//! Requests that follow a plan: whether a request's own place is free, and what stands in its way.

use super::block::{Id, NIL, State as Is};
use super::driver::Driver;
use super::plan_follower::{PlanFollower, Progress};
use super::pool::StreamPool;
use super::state::State;
use crate::handles::Stream;
use crate::types::Grant;
use crate::types::Source;

/// Where a request is to go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Anywhere: no plan is followed, or it does not say.
    Any,
    /// There.
    At(u64),
    /// It is known, but there are no addresses yet.
    Nowhere,
}

/// What is at a place.
#[derive(Clone, Copy)]
enum Ground {
    /// Memory that the queue may use, from this block on.
    Ready(Id),
    /// Addresses that lack memory.
    Bare,
    /// Memory that is free behind this fence of this queue.
    Behind(u32, u64),
    /// Something that is in use, or nothing of the pool's.
    Taken,
}

impl<E: Copy> State<E> {
    /// Where a request is to go. Leaves the plan if it is not the one that was to come.
    fn place_of(&mut self, need: u64) -> Place {
        let Some(follower) = &self.follower else {
            return Place::Any;
        };
        if follower.is_astray || follower.is_elsewhere {
            return Place::Any;
        }
        let step = follower.plan.step(follower.next);
        let Some(step) = step.filter(|step| step.bytes == need) else {
            self.differs(need);
            return Place::Any;
        };
        match (step.offset, follower.base) {
            (None, _) => Place::Any,
            (Some(_), None) => Place::Nowhere,
            (Some(offset), Some(base)) => Place::At(base.saturating_add(offset)),
        }
    }

    /// The plan is followed no further.
    pub fn leave(&mut self, asked: u64) {
        if let Some(mut follower) = self.follower.take() {
            if !follower.is_astray {
                follower.diverges(asked);
            }
            self.progress = Some(follower.progress());
        }
    }

    /// Another request came than was to come: the plan is followed from the next period on, if it has one.
    fn differs(&mut self, asked: u64) {
        match &mut self.follower {
            Some(follower) if follower.repeats() => {
                follower.diverges(asked);
                follower.is_astray = true;
            }
            _ => self.leave(asked),
        }
    }

    /// The place of the request is not free: it goes elsewhere, if the plan has a period in which the others may go to
    /// theirs.
    pub fn gives_place_up(&mut self, asked: u64) {
        match &mut self.follower {
            Some(follower) if follower.repeats() => {
                follower.diverges(asked);
                follower.is_elsewhere = true;
            }
            _ => self.leave(asked),
        }
    }

    /// A request was refused: the plan is followed no further. False: it had no part in that.
    pub fn leave_for(&mut self, bytes: u64) -> bool {
        let has_part = |follower: &PlanFollower| !follower.is_astray;
        let is_followed = self.follower.as_ref().is_some_and(has_part);
        if is_followed {
            self.leave(self.block_bytes(bytes));
        }
        is_followed
    }

    /// A block was handed out: the next step's turn, if this was the one.
    #[cold]
    pub fn followed(&mut self, address: u64, size: u64) {
        let Some(follower) = &mut self.follower else {
            return;
        };
        if follower.is_astray {
            follower.look_for_begin(size);
            return;
        }
        let is_elsewhere = std::mem::take(&mut follower.is_elsewhere);
        let is_there =
            |offset: u64| follower.base.map(|base| base.saturating_add(offset)) == Some(address);
        let step = follower.plan.step(follower.next);
        let step = step.filter(|step| step.bytes == size);
        if step.is_some_and(|step| is_elsewhere || step.offset.is_none_or(is_there)) {
            follower.next = follower.plan.after(follower.next);
            follower.followed += u64::from(!is_elsewhere);
        } else {
            self.differs(size);
            if let Some(follower) = &mut self.follower {
                follower.look_for_begin(size);
            }
        }
    }

    /// How far the plan was followed; `None` if there was none to follow.
    fn progress(&self) -> Option<Progress> {
        let follower = self.follower.as_ref();
        follower.map(PlanFollower::progress).or(self.progress)
    }

    /// What stands in the way of a queue at a place.
    fn ground(&self, queue: u32, start: u64, need: u64) -> Ground {
        let first = self
            .follower
            .as_ref()
            .and_then(|follower| follower.at(start));
        let (Some(first), Some(end)) = (first, start.checked_add(need)) else {
            return Ground::Taken;
        };
        let mut ground = Ground::Ready(first);
        let mut id = first;
        loop {
            let block = self.slab.at(id);
            match block.state {
                Is::Free if self.may_use(queue, id) => {}
                Is::Free => ground = Ground::Behind(block.queue, block.fence),
                Is::Unmapped if matches!(ground, Ground::Ready(_)) => ground = Ground::Bare,
                Is::Unmapped => {}
                _ => return Ground::Taken,
            }
            if block.end() >= end {
                return ground;
            }
            id = block.right;
            if id == NIL {
                return Ground::Taken;
            }
        }
    }

    /// The request's own place, if a plan is followed and all of that has memory which the queue may
    /// use. `Err`: it has one, but more is to be done for it; `Ok(None)`: it may go anywhere.
    pub fn take_place(&mut self, queue: u32, bytes: u64) -> Result<Option<Grant>, ()> {
        let need = self.block_bytes(bytes);
        let at = match self.place_of(need) {
            Place::Any => return Ok(None),
            Place::Nowhere => return Err(()),
            Place::At(at) => at,
        };
        match self.ground(queue, at, need) {
            Ground::Ready(first) => {
                let id = self.carve(at, at + need, first).ok_or(())?;
                Ok(Some(self.grown(id, queue, bytes, Source::Hit)))
            }
            Ground::Bare | Ground::Behind(..) => Err(()),
            Ground::Taken => {
                self.gives_place_up(need);
                Ok(None)
            }
        }
    }

    /// Where the request's own place begins, and a block there; `None`: it has none.
    pub fn aim(&mut self, need: u64) -> Option<(u64, Id)> {
        let Place::At(at) = self.place_of(need) else {
            return None;
        };
        let id = self.follower.as_ref()?.at(at)?;
        Some((at, id))
    }

    /// A queue whose work must be waited for before the request may have its place, and the fence.
    fn in_the_way(&mut self, queue: u32, need: u64) -> Option<(u32, u64)> {
        let (at, _) = self.aim(need)?;
        match self.ground(queue, at, need) {
            Ground::Behind(other, fence) => Some((other, fence)),
            _ => None,
        }
    }
}

impl<D: Driver> StreamPool<D> {
    /// How far the plan was followed; `None` if there was none to follow.
    pub fn progress(&self) -> Option<Progress> {
        self.state.lock().progress()
    }

    /// Makes a stream, or else the host, wait for all work in the request's own place. Where that cannot
    /// be, the place is given up.
    pub(super) fn order_in_place(&self, driver: &D, stream: Stream, bytes: u64) -> Option<Source> {
        let (mut source, mut last) = (None, None);
        loop {
            let mut state = self.state.lock();
            state.follower.as_ref()?;
            let need = state.block_bytes(bytes);
            let queue = state.queues.of(stream);
            let Some((other, fence)) = state.in_the_way(queue, need) else {
                return source;
            };
            drop(state);
            // What was waited for is not in the way again.
            let is_new = last.replace((other, fence)) != Some((other, fence));
            let done = is_new.then(|| self.order_behind(driver, stream, other, fence));
            match done.flatten() {
                Some(done) => source = Some(done),
                None => {
                    self.state.lock().gives_place_up(need);
                    return source;
                }
            }
        }
    }
}
