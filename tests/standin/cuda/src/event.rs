//! Events: creation, recording, waits and elapsed time.

use crate::abi::Out;
use crate::api::Via;
use crate::capture;
use crate::codes::{
    CAPTURED_EVENT, ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, NOT_READY, Outcome,
};
use crate::state::{State, lock, now};
use crate::timeline::Point;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
const INTERPROCESS: u32 = 4;
/// `CU_EVENT_RECORD_EXTERNAL` and `CU_EVENT_WAIT_EXTERNAL`: makes a node of its own in a capture.
const EXTERNAL: u32 = 1;

/// Result of the last record of an event.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// The event was never recorded.
    Never,
    /// Point in the work of the device.
    At(Point),
    /// Point in the graph of a capture.
    Captured(capture::Mark),
}

pub struct Event {
    /// Handle of the context that owns it.
    pub context: u64,
    /// Flags from its creation.
    pub flags: u32,
    /// Result of its last record.
    pub recorded: Recorded,
}

impl State {
    fn event(&mut self, handle: u64) -> Outcome<&mut Event> {
        self.events.get_mut(handle)
    }

    /// Returns the point that an event stands for; none if it was never recorded.
    fn point(&mut self, handle: u64) -> Outcome<Option<Point>> {
        match &self.event(handle)?.recorded {
            Recorded::Never => Ok(None),
            Recorded::At(point) => Ok(Some(point.clone())),
            Recorded::Captured(_) => Err(CAPTURED_EVENT),
        }
    }
}

/// Records an event on a stream. During capture it marks a point in the graph.
pub fn record(via: Via, stream: u64, event: u64, flags: u32) -> Outcome {
    if flags & !EXTERNAL != 0 {
        return Err(INVALID_VALUE);
    }
    let mut state = lock()?;
    let key = state.stream(via, stream)?;
    let context = state.event(event)?.context;
    if state.streams.get(key)?.context != context {
        return Err(INVALID_HANDLE);
    }
    if capture::is_in_capture(&state, key)? {
        if flags & EXTERNAL != 0 {
            return capture::append(&mut state, key, crate::work::Work::Record(event));
        }
        let mark = capture::mark(&state, key)?;
        state.event(event)?.recorded = Recorded::Captured(mark);
        return Ok(());
    }
    if flags & EXTERNAL != 0 {
        return Err(ILLEGAL_STATE);
    }
    capture::legacy_call(&mut state, key)?;
    let lane = state.streams.get(key)?.lane;
    let point = state.model.record(lane, now());
    state.event(event)?.recorded = Recorded::At(point);
    Ok(())
}

/// Makes later work of a stream wait for an event.
pub fn wait(via: Via, stream: u64, event: u64, flags: u32) -> Outcome {
    if flags & !EXTERNAL != 0 {
        return Err(INVALID_VALUE);
    }
    let mut state = lock()?;
    let key = state.stream(via, stream)?;
    let recorded = state.event(event)?.recorded.clone();
    if capture::is_in_capture(&state, key)? {
        if flags & EXTERNAL != 0 {
            return capture::append(&mut state, key, crate::work::Work::Wait(event));
        }
        return capture::wait_in_capture(&mut state, key, &recorded);
    }
    match recorded {
        Recorded::Never => Ok(()),
        Recorded::Captured(mark) => capture::join(&mut state, key, &mark),
        Recorded::At(point) => {
            capture::legacy_call(&mut state, key)?;
            let lane = state.streams.get(key)?.lane;
            state.model.wait(lane, &point);
            Ok(())
        }
    }
}

/// Records an event after all work of a context.
pub fn record_context(state: &mut State, context: u64, event: u64) -> Outcome {
    if state.event(event)?.context != context {
        return Err(INVALID_HANDLE);
    }
    let timeline = state.contexts.get(context)?.timeline;
    let point = state.model.record_context(timeline);
    state.event(event)?.recorded = Recorded::At(point);
    Ok(())
}

/// Makes all later work of a context wait for an event.
pub fn wait_context(state: &mut State, context: u64, event: u64) -> Outcome {
    let timeline = state.contexts.get(context)?.timeline;
    if let Some(point) = state.point(event)? {
        state.model.wait_context(timeline, &point);
    }
    Ok(())
}

fn destroy(event: u64) -> Outcome {
    lock()?.events.remove(event).map(drop)
}

fn elapsed(to: Out<f32>, from: u64, until: u64) -> Outcome {
    to.required()?;
    let mut state = lock()?;
    let mut time = |event| {
        if state.event(event)?.flags & DISABLE_TIMING != 0 {
            return Err(INVALID_HANDLE);
        }
        let point = state.point(event)?.ok_or(INVALID_HANDLE)?;
        point
            .finish
            .time()
            .filter(|time| *time <= now())
            .ok_or(NOT_READY)
    };
    let (from, until) = (time(from)?, time(until)?);
    to.put((until as f64 - from as f64) as f32 / 1e6)
}

api! {
    cuEventCreate 2000 => fn cuEventCreate(event: Out<u64>, flags: u32) {
        event.required()?;
        let mut state = lock()?;
        let context = state.current()?;
        if flags & !7 != 0 || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS {
            return Err(INVALID_VALUE);
        }
        event.put(state.events.insert(Event { context, flags, recorded: Recorded::Never }))
    }
    /// Records an event on a stream.
    cuEventRecord 2000 => fn cuEventRecord | cuEventRecord_ptsz[via](event: u64, stream: u64) {
        record(via, stream, event, 0)
    }
    /// Records an event on a stream.
    cuEventRecordWithFlags 11010 => fn cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz[via](event: u64, stream: u64, flags: u32) {
        record(via, stream, event, flags)
    }
    /// Reports if the recorded work is complete.
    cuEventQuery 2000 => fn cuEventQuery(event: u64) {
        let mut state = lock()?;
        capture::event_call(&mut state, event)?;
        match state.point(event)? {
            None => Ok(()),
            Some(point) if point.finish.is_past(now()) => {
                state.model.observe(&point);
                Ok(())
            }
            Some(_) => Err(NOT_READY),
        }
    }
    /// Waits for the recorded work to complete.
    cuEventSynchronize 2000 => fn cuEventSynchronize(event: u64) {
        let mut state = lock()?;
        capture::event_call(&mut state, event)?;
        if let Some(point) = state.point(event)? {
            state.wait_and_see(&point);
        }
        Ok(())
    }
    cuEventDestroy 2000 => fn cuEventDestroy(event: u64) {
        destroy(event)
    }
    cuEventDestroy 4000 => fn cuEventDestroy_v2(event: u64) {
        destroy(event)
    }
    /// Returns the milliseconds between two events.
    cuEventElapsedTime 2000 => fn cuEventElapsedTime(milliseconds: Out<f32>, from: u64, until: u64) {
        elapsed(milliseconds, from, until)
    }
    /// Returns the milliseconds between two events.
    cuEventElapsedTime 12080 => fn cuEventElapsedTime_v2(milliseconds: Out<f32>, from: u64, until: u64) {
        elapsed(milliseconds, from, until)
    }
}
