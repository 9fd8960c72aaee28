//! Requests that follow a placement: whether a request's own place is free, and what stands in its way.

use super::block::{Id, NIL, State as Is};
use super::course::{Left, Progress};
use super::driver::Driver;
use super::pool::MemPool;
use super::state::State;
use crate::handles::Stream;
use crate::types::Grant;
use crate::types::Source;

/// Where a request is to go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Anywhere: no placement is followed, or it does not say.
    Any,
    /// There.
    At(u64),
    /// It is known, but there are no addresses yet.
    Nowhere,
}

/// What is at a place.
#[derive(Clone, Copy)]
enum Ground {
    /// Memory that the lane may use, from this block on.
    Ready(Id),
    /// Addresses that lack memory.
    Bare,
    /// Memory that is free behind this fence of this lane.
    Behind(u32, u64),
    /// Something that is in use, or nothing of the pool's.
    Taken,
}

impl<E: Copy> State<E> {
    /// Where a request is to go. Gives the placement up if it is not the one that was to come.
    fn place_of(&mut self, need: u64) -> Place {
        let Some(course) = &self.course else {
            return Place::Any;
        };
        let step = course.placement.step(course.next);
        let Some(step) = step.filter(|step| step.bytes == need) else {
            self.leave(need);
            return Place::Any;
        };
        match (step.offset, course.base) {
            (None, _) => Place::Any,
            (Some(_), None) => Place::Nowhere,
            (Some(offset), Some(base)) => Place::At(base.saturating_add(offset)),
        }
    }

    /// The placement is followed no further.
    pub fn leave(&mut self, asked: u64) {
        let Some(course) = self.course.take() else {
            return;
        };
        let step = course.placement.step(course.next);
        self.progress = Some(Progress {
            followed: course.followed,
            left: Some(Left {
                asked,
                expected: step.map_or(0, |step| step.bytes),
            }),
        });
    }

    /// A request was refused: the placement is followed no further. False: none was.
    pub fn leave_for(&mut self, bytes: u64) -> bool {
        let is_followed = self.course.is_some();
        self.leave(self.block_bytes(bytes));
        is_followed
    }

    /// A block was handed out: the next step's turn, if this was the one.
    #[cold]
    pub fn followed(&mut self, address: u64, size: u64) {
        let Some(course) = &mut self.course else {
            return;
        };
        let is_there =
            |offset: u64| course.base.map(|base| base.saturating_add(offset)) == Some(address);
        let step = course.placement.step(course.next);
        let is_it = step.is_some_and(|step| step.bytes == size && step.offset.is_none_or(is_there));
        if is_it {
            course.next = course.placement.after(course.next);
            course.followed += 1;
        } else {
            self.leave(size);
        }
    }

    /// How far the placement was followed; `None` if there was none to follow.
    fn progress(&self) -> Option<Progress> {
        let Some(course) = &self.course else {
            return self.progress;
        };
        Some(Progress {
            followed: course.followed,
            left: None,
        })
    }

    /// What stands in the way of a lane at a place.
    fn ground(&self, lane: u32, start: u64, need: u64) -> Ground {
        let first = self.course.as_ref().and_then(|course| course.at(start));
        let (Some(first), Some(end)) = (first, start.checked_add(need)) else {
            return Ground::Taken;
        };
        let mut ground = Ground::Ready(first);
        let mut id = first;
        loop {
            let block = self.slab.at(id);
            match block.state {
                Is::Free if self.may_use(lane, id) => {}
                Is::Free => ground = Ground::Behind(block.lane, block.fence),
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

    /// The request's own place, if a placement is followed and all of that has memory which the lane may
    /// use. `Err`: it has one, but more is to be done for it; `Ok(None)`: it may go anywhere.
    pub fn take_place(&mut self, lane: u32, bytes: u64) -> Result<Option<Grant>, ()> {
        let need = self.block_bytes(bytes);
        let at = match self.place_of(need) {
            Place::Any => return Ok(None),
            Place::Nowhere => return Err(()),
            Place::At(at) => at,
        };
        match self.ground(lane, at, need) {
            Ground::Ready(first) => {
                let id = self.carve(at, at + need, first).ok_or(())?;
                Ok(Some(self.grown(id, lane, bytes, Source::Hit)))
            }
            Ground::Bare | Ground::Behind(..) => Err(()),
            Ground::Taken => {
                self.leave(need);
                Ok(None)
            }
        }
    }

    /// Where the request's own place begins, and a block there; `None`: it has none.
    pub fn aim(&mut self, need: u64) -> Option<(u64, Id)> {
        let Place::At(at) = self.place_of(need) else {
            return None;
        };
        let id = self.course.as_ref()?.at(at)?;
        Some((at, id))
    }

    /// A lane whose work must be waited for before the request may have its place, and the fence.
    fn in_the_way(&mut self, lane: u32, need: u64) -> Option<(u32, u64)> {
        let (at, _) = self.aim(need)?;
        match self.ground(lane, at, need) {
            Ground::Behind(other, fence) => Some((other, fence)),
            _ => None,
        }
    }
}

impl<D: Driver> MemPool<D> {
    /// How far the placement was followed; `None` if there was none to follow.
    pub fn progress(&self) -> Option<Progress> {
        self.state.lock().progress()
    }

    /// Makes a stream, or else the host, wait for all work in the request's own place. Where that cannot
    /// be, the placement is given up.
    pub(super) fn order_in_place(&self, driver: &D, stream: Stream, bytes: u64) -> Option<Source> {
        let (mut source, mut last) = (None, None);
        loop {
            let mut state = self.state.lock();
            state.course.as_ref()?;
            let need = state.block_bytes(bytes);
            let lane = state.lanes.of(stream);
            let Some((other, fence)) = state.in_the_way(lane, need) else {
                return source;
            };
            drop(state);
            // What was waited for is not in the way again.
            let is_new = last.replace((other, fence)) != Some((other, fence));
            let done = is_new.then(|| self.order_behind(driver, stream, other, fence));
            match done.flatten() {
                Some(done) => source = Some(done),
                None => {
                    self.state.lock().leave(need);
                    return source;
                }
            }
        }
    }
}
