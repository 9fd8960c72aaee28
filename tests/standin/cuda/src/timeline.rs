//! Order of work: streams, events, contexts, the legacy stream and the host.
//!
//! Order is kept as happens-before (vector clocks), separate from time. The end of work orders
//! nothing until the host has seen it.

use std::sync::Arc;

use crate::clock::{Clock, Lane};
use crate::finish::Finish;

/// Index of a context in the timeline.
pub type ContextId = u32;

/// Relation of a lane to its context's legacy stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The legacy default stream itself.
    Legacy,
    /// Waits for the legacy stream and is waited for by it. Per-thread default streams are of this
    /// kind.
    Blocking,
    /// Created with `CU_STREAM_NON_BLOCKING`.
    NonBlocking,
}

/// Recorded point: the work ordered before it, and the end of that work.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// Items ordered before the point.
    pub clock: Arc<Clock>,
    /// End of the work before the point.
    pub finish: Finish,
}

struct LaneState {
    context: ContextId,
    kind: Kind,
    /// Handle of the stream, for messages.
    name: u64,
    clock: Clock,
    seq: u64,
    finish: Finish,
    seen_host: u64,
    seen_gate: u64,
    seen_legacy: u64,
    /// True if the context's `all` lacks its latest work.
    fresh: bool,
    /// True if the legacy stream has not waited for its latest work.
    fresh_for_legacy: bool,
}

#[derive(Default)]
struct ContextState {
    legacy: Lane,
    /// Number of actions on the legacy stream. Blocking streams wait for it when the number has
    /// changed.
    legacy_actions: u64,
    lanes: Vec<Lane>,
    all: Point,
    fresh: Vec<Lane>,
    blocking: Vec<Lane>,
    /// Work of destroyed blocking streams that the legacy stream has not waited for yet.
    left: Point,
    gate: Point,
    gates: u64,
}

/// Order of all work in the process.
#[derive(Default)]
pub struct Timeline {
    lanes: Vec<LaneState>,
    retired: Vec<Lane>,
    free: Vec<Lane>,
    contexts: Vec<ContextState>,
    free_contexts: Vec<ContextId>,
    host: Clock,
    host_version: u64,
}

impl Timeline {
    /// Opens a context with its legacy stream, named `name` in messages.
    pub fn open_context(&mut self, name: u64) -> ContextId {
        let id = self.free_contexts.pop().unwrap_or_else(|| {
            self.contexts.push(ContextState::default());
            (self.contexts.len() - 1) as ContextId
        });
        self.contexts[id as usize] = ContextState::default();
        let legacy = self.open_lane(id, Kind::Legacy, name);
        self.contexts[id as usize].legacy = legacy;
        id
    }

    /// Closes a context with its streams. The caller has waited for its work or reported it.
    pub fn close_context(&mut self, context: ContextId) {
        let all = self.record_context(context);
        self.observe(&all.clock);
        for lane in std::mem::take(&mut self.contexts[context as usize].lanes) {
            self.retired.push(lane);
        }
        self.reclaim();
        self.free_contexts.push(context);
    }

    /// Returns the lane of a context's legacy stream.
    pub fn legacy(&self, context: ContextId) -> Lane {
        self.contexts[context as usize].legacy
    }

    /// Opens a new stream's lane.
    pub fn open_lane(&mut self, context: ContextId, kind: Kind, name: u64) -> Lane {
        let state = LaneState {
            context,
            kind,
            name,
            clock: Clock::default(),
            seq: 0,
            finish: Finish::default(),
            // Counts start at 1 if there is something to see: 0 has seen nothing.
            seen_host: 0,
            seen_gate: 0,
            seen_legacy: 0,
            fresh: false,
            fresh_for_legacy: false,
        };
        let lane = match self.free.pop() {
            Some(lane) => {
                // Numbers continue: all work of the former owner is known to the host.
                let seq = self.lanes[lane as usize].seq;
                self.lanes[lane as usize] = LaneState { seq, ..state };
                lane
            }
            None => {
                self.lanes.push(state);
                (self.lanes.len() - 1) as Lane
            }
        };
        self.contexts[context as usize].lanes.push(lane);
        lane
    }

    /// Retires the lane of a destroyed stream. Its unfinished work continues.
    pub fn retire(&mut self, lane: Lane) {
        let context = self.lanes[lane as usize].context as usize;
        self.take_up(lane);
        let state = &mut self.lanes[lane as usize];
        let owner = &mut self.contexts[context];
        if state.fresh_for_legacy {
            state.fresh_for_legacy = false;
            owner.blocking.retain(|other| *other != lane);
            Arc::make_mut(&mut owner.left.clock).join(&state.clock);
            owner.left.finish.join(&state.finish);
        }
        owner.fresh.retain(|other| *other != lane);
        owner.lanes.retain(|other| *other != lane);
        self.retired.push(lane);
        self.reclaim();
    }

    /// Submits an item of `duration` nanoseconds to a lane and returns its number there.
    pub fn submit(&mut self, lane: Lane, duration: u64, now: u64) -> u64 {
        self.enter(lane);
        let state = &mut self.lanes[lane as usize];
        state.finish.extend(duration, now);
        state.seq += 1;
        state.clock.advance(lane, state.seq);
        let seq = state.seq;
        self.moved(lane);
        seq
    }

    /// Holds the lane's later work until `gate` opens.
    pub fn hold(&mut self, lane: Lane, gate: Arc<crate::finish::Gate>) {
        self.lanes[lane as usize].finish.hold(gate);
        self.moved(lane);
    }

    /// Returns the items ordered before the lane's next item, as of its last call.
    pub fn clock(&self, lane: Lane) -> &Clock {
        &self.lanes[lane as usize].clock
    }

    /// Returns the end of the lane's work.
    pub fn finish(&self, lane: Lane) -> &Finish {
        &self.lanes[lane as usize].finish
    }

    /// Returns the handle of the lane's stream.
    pub fn name(&self, lane: Lane) -> u64 {
        self.lanes[lane as usize].name
    }

    /// Returns a point after everything submitted to the lane so far.
    pub fn record(&mut self, lane: Lane, now: u64) -> Point {
        self.enter(lane);
        let state = &mut self.lanes[lane as usize];
        state.finish.extend(0, now);
        let point = Point {
            clock: Arc::new(state.clock.clone()),
            finish: state.finish.clone(),
        };
        if state.kind == Kind::Legacy {
            self.moved(lane);
        }
        point
    }

    /// Returns the point that [`Timeline::record`] would, but orders nothing: no lane takes
    /// anything in.
    pub fn reached(&self, lane: Lane) -> Point {
        let state = &self.lanes[lane as usize];
        let context = &self.contexts[state.context as usize];
        let (mut clock, mut finish) = (state.clock.clone(), state.finish.clone());
        clock.join(&self.host);
        clock.join(&context.gate.clock);
        finish.join(&context.gate.finish);
        let before: Vec<Lane> = match state.kind {
            Kind::NonBlocking => Vec::new(),
            Kind::Blocking => vec![context.legacy],
            Kind::Legacy => context.blocking.clone(),
        };
        if state.kind == Kind::Legacy {
            clock.join(&context.left.clock);
            finish.join(&context.left.finish);
        }
        for other in before {
            clock.join(&self.lanes[other as usize].clock);
            finish.join(&self.lanes[other as usize].finish);
        }
        let clock = Arc::new(clock);
        Point { clock, finish }
    }

    /// Returns the point that a host waits for when it synchronises with the stream. For the legacy
    /// stream this includes the blocking streams; for another stream only its own work.
    pub fn target(&mut self, lane: Lane) -> Point {
        if self.lanes[lane as usize].kind == Kind::Legacy {
            return self.record(lane, 0);
        }
        let state = &self.lanes[lane as usize];
        Point {
            clock: Arc::new(state.clock.clone()),
            finish: state.finish.clone(),
        }
    }

    /// Orders later work on the lane after the point.
    pub fn wait(&mut self, lane: Lane, point: &Point) {
        self.enter(lane);
        let state = &mut self.lanes[lane as usize];
        state.clock.join(&point.clock);
        state.finish.join(&point.finish);
        self.moved(lane);
    }

    /// Returns a point after all work submitted so far to any stream of the context.
    pub fn record_context(&mut self, context: ContextId) -> Point {
        for lane in std::mem::take(&mut self.contexts[context as usize].fresh) {
            self.take_up(lane);
        }
        self.contexts[context as usize].all.clone()
    }

    /// Orders later work on any stream of the context after the point, including streams created
    /// later.
    pub fn wait_context(&mut self, context: ContextId, point: &Point) {
        let state = &mut self.contexts[context as usize];
        Arc::make_mut(&mut state.gate.clock).join(&point.clock);
        state.gate.finish.join(&point.finish);
        state.gates += 1;
    }

    /// Records that the host has seen this work complete. All work submitted from now on comes
    /// after it.
    pub fn observe(&mut self, clock: &Clock) {
        if self.host.join(clock) {
            self.host_version += 1;
            if !self.retired.is_empty() {
                self.reclaim();
            }
        }
    }

    /// Returns the items that the host has seen complete.
    pub fn host(&self) -> &Clock {
        &self.host
    }

    /// Takes in the points that order later work on the lane by rule: work that the host has seen,
    /// waits on the context, the legacy stream.
    fn enter(&mut self, lane: Lane) {
        let state = &mut self.lanes[lane as usize];
        let context = &mut self.contexts[state.context as usize];
        if state.seen_host != self.host_version {
            state.seen_host = self.host_version;
            state.clock.join(&self.host);
        }
        if state.seen_gate != context.gates {
            state.seen_gate = context.gates;
            state.clock.join(&context.gate.clock);
            state.finish.join(&context.gate.finish);
        }
        match state.kind {
            Kind::NonBlocking => {}
            Kind::Blocking => {
                if state.seen_legacy == context.legacy_actions {
                    return;
                }
                state.seen_legacy = context.legacy_actions;
                let legacy = context.legacy as usize;
                if let Ok([state, legacy]) = self.lanes.get_disjoint_mut([lane as usize, legacy]) {
                    state.clock.join(&legacy.clock);
                    state.finish.join(&legacy.finish);
                }
            }
            Kind::Legacy => {
                let left = std::mem::take(&mut context.left);
                state.clock.join(&left.clock);
                state.finish.join(&left.finish);
                for other in std::mem::take(&mut context.blocking) {
                    let both = [lane as usize, other as usize];
                    if let Ok([state, other]) = self.lanes.get_disjoint_mut(both) {
                        other.fresh_for_legacy = false;
                        state.clock.join(&other.clock);
                        state.finish.join(&other.finish);
                    }
                }
            }
        }
    }

    /// Notes new work on the lane. Other lanes may have to wait for it.
    fn moved(&mut self, lane: Lane) {
        let state = &mut self.lanes[lane as usize];
        let context = &mut self.contexts[state.context as usize];
        if !state.fresh {
            state.fresh = true;
            context.fresh.push(lane);
        }
        match state.kind {
            Kind::Legacy => context.legacy_actions += 1,
            Kind::Blocking if !state.fresh_for_legacy => {
                state.fresh_for_legacy = true;
                context.blocking.push(lane);
            }
            _ => {}
        }
    }

    fn take_up(&mut self, lane: Lane) {
        let state = &mut self.lanes[lane as usize];
        if std::mem::take(&mut state.fresh) {
            let all = &mut self.contexts[state.context as usize].all;
            Arc::make_mut(&mut all.clock).join(&state.clock);
            all.finish.extend(0, 0);
            all.finish.join(&state.finish);
        }
    }

    /// Makes lanes of destroyed streams available again once the host has seen all their work
    /// complete.
    fn reclaim(&mut self) {
        let (lanes, host, free) = (&self.lanes, &self.host, &mut self.free);
        self.retired.retain(|lane| {
            let done = host.covers(*lane, lanes[*lane as usize].seq);
            if done {
                free.push(*lane);
            }
            !done
        });
    }
}
