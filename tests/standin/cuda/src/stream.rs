//! Streams: creation, default streams, waits, queries and destruction.

use std::collections::HashMap;

use crate::abi::{Out, STREAM_LEGACY, STREAM_NON_BLOCKING, STREAM_PER_THREAD};
use crate::api::Via;
use crate::capture;
use crate::clock::Lane;
use crate::codes::{INVALID_HANDLE, INVALID_VALUE, NOT_READY, Outcome};
use crate::memory;
use crate::state::{State, lock, now};
use crate::thread;
use crate::timeline::Kind;

/// Lowest and highest priority, as on an H100.
pub const PRIORITIES: (i32, i32) = (0, -5);

pub struct Stream {
    /// Lane of its work in the model.
    pub lane: Lane,
    /// Handle of the context that owns it.
    pub context: u64,
    /// Flags from its creation.
    pub flags: u32,
    /// Its priority, in the range of [`PRIORITIES`].
    pub priority: i32,
    /// Its relation to the legacy stream.
    pub kind: Kind,
    /// Number that no other stream has.
    pub id: u64,
    /// Its part in a capture, if any.
    pub capture: Option<capture::Part>,
    /// Attributes that were set, by number.
    pub attributes: HashMap<u32, crate::stream_attr::Value>,
}

impl State {
    /// Returns the key of the stream that a caller means by a handle.
    pub fn stream(&mut self, via: Via, handle: u64) -> Outcome<u64> {
        match (handle, via) {
            (STREAM_LEGACY, _) | (0, Via::Legacy) => {
                let current = self.current()?;
                Ok(self.contexts.get(current)?.legacy)
            }
            (STREAM_PER_THREAD, _) | (0, Via::PerThread) => self.per_thread(),
            _ if self.streams.contains(handle) => Ok(handle),
            _ => Err(INVALID_HANDLE),
        }
    }

    fn per_thread(&mut self) -> Outcome<u64> {
        let (context, thread) = (self.current()?, thread::id());
        if let Some(stream) = self.contexts.get(context)?.per_thread.get(&thread) {
            return Ok(*stream);
        }
        let stream = self.open_stream(context, Kind::Blocking, 0, 0)?;
        self.contexts
            .get_mut(context)?
            .per_thread
            .insert(thread, stream);
        thread::ends();
        Ok(stream)
    }

    /// Makes a stream in a context.
    pub fn open_stream(
        &mut self,
        context: u64,
        kind: Kind,
        flags: u32,
        priority: i32,
    ) -> Outcome<u64> {
        let timeline = self.contexts.get(context)?.timeline;
        let model = &mut self.model;
        Ok(self.streams.insert_with(|handle| Stream {
            lane: model.open_lane(timeline, kind, handle),
            context,
            flags,
            priority,
            kind,
            id: handle,
            capture: None,
            attributes: HashMap::new(),
        }))
    }
}

fn create(to: Out<u64>, flags: u32, priority: i32) -> Outcome {
    to.required()?;
    let kind = match flags {
        0 => Kind::Blocking,
        STREAM_NON_BLOCKING => Kind::NonBlocking,
        _ => return Err(INVALID_VALUE),
    };
    let mut state = lock()?;
    let context = state.current()?;
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    to.put(state.open_stream(context, kind, flags, priority)?)
}

fn destroy(handle: u64) -> Outcome {
    let mut state = lock()?;
    if matches!(handle, 0 | STREAM_LEGACY | STREAM_PER_THREAD) {
        return Err(INVALID_HANDLE);
    }
    capture::forget_stream(&mut state, handle)?;
    let stream = state.streams.remove(handle)?;
    state.model.retire(stream.lane);
    Ok(())
}

/// Destroys the default streams of a thread that has ended. Their work continues. A capturing
/// stream stays.
pub fn thread_gone(thread: u64) {
    let Ok(mut state) = lock() else { return };
    let of_thread = |(context, of): (u64, &crate::context::Context)| {
        let stream = of.per_thread.get(&thread).copied()?;
        Some((context, stream))
    };
    let streams: Vec<_> = state.contexts.iter().filter_map(of_thread).collect();
    for (context, handle) in streams {
        if state
            .streams
            .get(handle)
            .is_ok_and(|stream| stream.capture.is_some())
        {
            continue;
        }
        if let Ok(context) = state.contexts.get_mut(context) {
            context.per_thread.remove(&thread);
        }
        if let Ok(stream) = state.streams.remove(handle) {
            state.model.retire(stream.lane);
        }
    }
}

fn query(via: Via, handle: u64) -> Outcome {
    let mut state = lock()?;
    let key = state.stream(via, handle)?;
    capture::host_call(&mut state, key)?;
    let lane = state.streams.get(key)?.lane;
    let target = state.model.target(lane);
    if !target.finish.is_past(now()) {
        return Err(NOT_READY);
    }
    state.model.observe(&target);
    Ok(())
}

fn synchronize(via: Via, handle: u64) -> Outcome {
    let mut state = lock()?;
    let key = state.stream(via, handle)?;
    capture::host_call(&mut state, key)?;
    let lane = state.streams.get(key)?.lane;
    let target = state.model.target(lane);
    state.wait_and_see(&target);
    Ok(())
}

fn get<T>(
    via: Via,
    handle: u64,
    to: Out<T>,
    what: impl FnOnce(&State, &Stream) -> Outcome<T>,
) -> Outcome {
    let mut state = lock()?;
    let key = state.stream(via, handle)?;
    to.put(what(&state, state.streams.get(key)?)?)
}

fn context_of(via: Via, handle: u64, context: Out<u64>) -> Outcome {
    get(via, handle, context, |_, stream| Ok(stream.context))
}

api! {
    cuStreamCreate 2000 => fn cuStreamCreate(stream: Out<u64>, flags: u32) {
        create(stream, flags, 0)
    }
    cuStreamCreateWithPriority 5050 => fn cuStreamCreateWithPriority(stream: Out<u64>, flags: u32, priority: i32) {
        create(stream, flags, priority)
    }
    /// Destroys a stream; its work continues.
    cuStreamDestroy 2000 => fn cuStreamDestroy(stream: u64) {
        destroy(stream)
    }
    /// Destroys a stream; its work continues.
    cuStreamDestroy 4000 => fn cuStreamDestroy_v2(stream: u64) {
        destroy(stream)
    }
    /// Reports if all work of a stream is complete.
    cuStreamQuery 2000 => fn cuStreamQuery | cuStreamQuery_ptsz[via](stream: u64) {
        query(via, stream)
    }
    /// Waits for all work of a stream.
    cuStreamSynchronize 2000 => fn cuStreamSynchronize | cuStreamSynchronize_ptsz[via](stream: u64) {
        synchronize(via, stream)
    }
    /// Makes later work of a stream wait for an event.
    cuStreamWaitEvent 3020 => fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz[via](stream: u64, event: u64, flags: u32) {
        crate::event::wait(via, stream, event, flags)
    }
    /// Returns the priority of a stream.
    cuStreamGetPriority 5050 => fn cuStreamGetPriority | cuStreamGetPriority_ptsz[via](stream: u64, priority: Out<i32>) {
        get(via, stream, priority, |_, stream| Ok(stream.priority))
    }
    /// Returns the flags of a stream.
    cuStreamGetFlags 5050 => fn cuStreamGetFlags | cuStreamGetFlags_ptsz[via](stream: u64, flags: Out<u32>) {
        get(via, stream, flags, |_, stream| Ok(stream.flags))
    }
    /// Returns a number that no other stream has.
    cuStreamGetId 12000 => fn cuStreamGetId | cuStreamGetId_ptsz[via](stream: u64, id: Out<u64>) {
        get(via, stream, id, |_, stream| Ok(stream.id))
    }
    /// Returns the context of a stream.
    cuStreamGetCtx 9020 => fn cuStreamGetCtx | cuStreamGetCtx_ptsz[via](stream: u64, context: Out<u64>) {
        context_of(via, stream, context)
    }
    /// Returns the context of a stream. The green context is always 0.
    cuStreamGetCtx 12050 => fn cuStreamGetCtx_v2 | cuStreamGetCtx_v2_ptsz[via](stream: u64, context: Out<u64>, green: Out<u64>) {
        context_of(via, stream, context)?;
        green.maybe(0);
        Ok(())
    }
    /// Returns the device of a stream.
    cuStreamGetDevice 12080 => fn cuStreamGetDevice | cuStreamGetDevice_ptsz[via](stream: u64, device: Out<i32>) {
        get(via, stream, device, |state, stream| Ok(state.contexts.get(stream.context)?.device))
    }
    /// Accepts managed memory for a stream without effect.
    cuStreamAttachMemAsync 6000 => fn cuStreamAttachMemAsync | cuStreamAttachMemAsync_ptsz[via](stream: u64, address: u64, _bytes: usize, _flags: u32) {
        let mut state = lock()?;
        state.stream(via, stream)?;
        match state.memory.find(address) {
            Some((_, found)) if found.kind == memory::Kind::Managed => Ok(()),
            _ => Err(INVALID_VALUE),
        }
    }
}
