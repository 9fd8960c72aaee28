//! Makes fences: records events, orders contexts after them, waits for them. The lock is released during each call.

use super::device::Device;
use super::fences::{Contexts, Events};
use super::pool::{DevicePool, Guard};
use super::state::State;
use parking_lot::MutexGuard;

/// Superfluous events that are kept, at least, before they are given back together.
pub(super) const GARBAGE: usize = 16;

impl<D: Device> DevicePool<D> {
    /// A call to the device that would invalidate a capture. Only to be made while none is open.
    pub(super) fn outside<R>(&self, state: &mut Guard<'_, D>, call: impl FnOnce(&D) -> R) -> R {
        state.calls += 1;
        let result = MutexGuard::unlocked(state, || call(&self.device));
        state.calls -= 1;
        if state.calls == 0 {
            if state.captures.is_open() {
                self.changed.notify_all();
            }
            self.sweep(state, GARBAGE);
        }
        result
    }

    /// Notes that later work of all contexts concerned waits for a fence.
    pub(super) fn ordered(&self, state: &mut State<D::Event>, serial: u64, id: u64) {
        if let Some(Some(arena)) = state.index(serial).and_then(|i| state.arenas.get_mut(i)) {
            arena.fences.ordered(id, &mut state.garbage);
        }
    }

    /// Gives events back that no call uses, once there are `least` of them.
    pub(super) fn sweep(&self, state: &mut Guard<'_, D>, least: usize) {
        if state.calls > 0 || state.garbage.len() < least {
            return;
        }
        let garbage: Vec<Events<D::Event>> = std::mem::take(&mut state.garbage);
        MutexGuard::unlocked(state, || {
            for (_, event) in garbage.iter().flat_map(|events| events.iter()) {
                self.device.retire(*event);
            }
        });
    }

    /// Records the events of a fence.
    pub(super) fn record(
        &self,
        state: &mut Guard<'_, D>,
        serial: u64,
        id: u64,
        contexts: &Contexts,
        later: Option<&Contexts>,
    ) -> Recorded {
        let mut events = Events::new();
        let owner = state.arena(serial).map(|arena| arena.context);
        let recorded = self.outside(state, |device| {
            for context in contexts.iter() {
                match device.record(*context) {
                    Ok(Some(event)) => events.push((*context, event)),
                    Ok(None) => return Recorded::Unsupported,
                    Err(error) if D::is_end(error) && Some(*context) != owner => {}
                    Err(_) => return Recorded::Failed,
                }
            }
            let Some(later) = later else {
                return Recorded::Yes;
            };
            let ordered = later.iter().all(|context| {
                let mut events = events.iter();
                events.all(|(_, event)| device.order(*context, *event).is_ok())
            });
            if ordered {
                Recorded::Ordered
            } else {
                Recorded::Failed
            }
        });
        let unneeded = match (&recorded, state.arena_mut(serial)) {
            (Recorded::Yes | Recorded::Ordered, Some(arena)) => arena.fences.recorded(id, events),
            _ => Some(events),
        };
        state.garbage.extend(unneeded);
        recorded
    }

    /// Waits for everything that the contexts have been given to do. A fence closed before that is
    /// complete then.
    pub(super) fn synchronize(
        &self,
        state: &mut Guard<'_, D>,
        serial: u64,
        id: u64,
        contexts: &Contexts,
    ) -> bool {
        if state.captures.is_open() {
            return false;
        }
        let done = self.outside(state, |device| {
            contexts
                .iter()
                .all(|context| device.finish(*context).is_ok())
        });
        if done {
            state.completed(serial, id);
        }
        done
    }
}

/// How recording a fence went.
pub(super) enum Recorded {
    /// And later work waits for it.
    Ordered,
    Yes,
    /// The driver has no such events.
    Unsupported,
    Failed,
}
