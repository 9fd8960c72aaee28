//! Contexts: creation, the current context of each thread, limits, synchronisation and destruction.

use std::collections::HashMap;

use crate::abi::{In, Out};
use crate::codes::{
    CONTEXT_IS_DESTROYED, INVALID_CONTEXT, INVALID_VALUE, Outcome, UNSUPPORTED_LIMIT,
};
use crate::env::settings;
use crate::state::{Guard, State, lock, now};
use crate::timeline::{ContextId, Kind};
use crate::{capture, thread};

pub struct Context {
    /// Ordinal of the device it is on.
    pub device: i32,
    /// Flags from its creation.
    pub flags: u32,
    /// Number that no other context has.
    pub id: u64,
    /// Its index in the timeline.
    pub timeline: ContextId,
    /// Handle of its legacy stream.
    pub legacy: u64,
    /// Default streams of threads, by thread.
    pub per_thread: HashMap<u64, u64>,
    /// Values of `cuCtxSetLimit`, by number of the limit.
    pub limits: HashMap<u32, usize>,
    /// Primary context that this green context holds; none for other contexts.
    pub green_of: Option<u64>,
    /// Claims on it beyond the first (`cuCtxAttach`).
    pub attached: u32,
}

/// Flags that `cuCtxCreate` accepts: scheduling, host mapping, local memory, core dumps and sync
/// memops.
const KNOWN_FLAGS: u32 = 0xff;

/// Returns the default of a limit, as on an H100.
///
/// - 0, 1, 2: stack, printf buffer and malloc heap, in bytes.
/// - 4: number of pending launches.
/// - 5, 6: L2 granularity and persisting L2, in bytes.
fn default_limit(limit: u32) -> Outcome<usize> {
    match limit {
        0 => Ok(1024),
        1 => Ok(7_340_032),
        2 => Ok(8_388_608),
        4 => Ok(2048),
        5 => Ok(64),
        6 => Ok(0),
        3 => Err(UNSUPPORTED_LIMIT),
        _ => Err(INVALID_VALUE),
    }
}

impl State {
    /// Returns the handle of the current context.
    pub fn current(&self) -> Outcome<u64> {
        match thread::current() {
            0 => Err(INVALID_CONTEXT),
            handle if self.contexts.contains(handle) => Ok(handle),
            handle if self.was_context(handle) => Err(CONTEXT_IS_DESTROYED),
            _ => Err(INVALID_CONTEXT),
        }
    }

    /// Remembers a destroyed context. Only the latest are kept: older handles are reported as
    /// invalid.
    pub fn note_gone(&mut self, handle: u64, device: i32) {
        const REMEMBERED: usize = 1024;
        self.gone.insert(handle, device);
        if self.gone.len() > REMEMBERED {
            // Handles grow: the first entry is the oldest.
            self.gone.pop_first();
        }
    }

    /// True for the handle of a context that is destroyed or reset.
    fn was_context(&self, handle: u64) -> bool {
        handle != 0
            && (self.gone.contains_key(&handle)
                || self.devices.iter().any(|device| device.primary == handle))
    }

    /// Returns the context of a handle; 0 means the current context.
    pub fn context_or_current(&self, handle: u64) -> Outcome<u64> {
        match handle {
            0 => self.current(),
            handle if self.contexts.contains(handle) => Ok(handle),
            _ => Err(INVALID_CONTEXT),
        }
    }

    /// Makes a context; `handle` is 0 or a reserved handle.
    pub fn open_context(&mut self, handle: u64, device: i32, flags: u32) -> u64 {
        let handle = match handle {
            0 => self.contexts.reserve(),
            handle => handle,
        };
        let timeline = self.model.open_context(handle);
        let legacy = self.streams.insert_with(|stream| crate::stream::Stream {
            lane: self.model.legacy(timeline),
            context: handle,
            flags: 0,
            priority: 0,
            kind: Kind::Legacy,
            id: stream,
            capture: None,
            attributes: HashMap::new(),
        });
        let context = Context {
            device,
            flags,
            id: legacy,
            timeline,
            legacy,
            per_thread: HashMap::new(),
            limits: HashMap::new(),
            green_of: None,
            attached: 0,
        };
        self.contexts.insert_at(handle, context);
        handle
    }
}

/// Destroys a context with everything in it. Work that still runs is a finding.
pub fn close(state: &mut Guard, handle: u64) -> Outcome {
    let context = state.contexts.get(handle).map_err(|_| INVALID_CONTEXT)?;
    let (timeline, device) = (context.timeline, context.device);
    let all = state.model.record_context(timeline);
    if !all.finish.is_past(now()) {
        state.model.find(format!(
            "unfinished: context {handle:#x} destroyed under running work"
        ));
        state.wait_and_see(&all);
    }
    capture::forget_context(state, handle);
    state.streams.retain(|_, stream| stream.context != handle);
    state.events.retain(|_, event| event.context != handle);
    crate::module::context_gone(state, handle);
    state.model.close_context(timeline);
    crate::memory::context_gone(state, handle, device);
    crate::array::context_gone(state, handle);
    state.peers.forget(handle);
    state.contexts.remove(handle).map(drop)
}

fn create(to: Out<u64>, flags: u32, device: i32) -> Outcome {
    to.required()?;
    let mut state = lock()?;
    state.device(device)?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    let handle = state.open_context(0, device, flags);
    thread::push(handle);
    to.put(handle)
}

/// Destroys a context of `cuCtxCreate`. The calling thread may have it current.
pub fn destroy(handle: u64) -> Outcome {
    let mut state = lock()?;
    if handle == 0 {
        return Err(INVALID_VALUE);
    }
    if state.devices.iter().any(|device| device.primary == handle) {
        return Err(INVALID_CONTEXT);
    }
    if state.gone.contains_key(&handle) {
        return Err(CONTEXT_IS_DESTROYED);
    }
    let device = state
        .contexts
        .get(handle)
        .map_err(|_| INVALID_VALUE)?
        .device;
    close(&mut state, handle)?;
    state.note_gone(handle, device);
    if thread::current() == handle {
        thread::pop();
    }
    Ok(())
}

fn push(handle: u64) -> Outcome {
    let state = lock()?;
    if !state.contexts.contains(handle) && !state.was_context(handle) {
        return Err(INVALID_VALUE);
    }
    thread::push(handle);
    Ok(())
}

fn pop(to: Out<u64>) -> Outcome {
    lock()?;
    let handle = thread::pop().ok_or(INVALID_CONTEXT)?;
    to.maybe(handle);
    Ok(())
}

fn synchronize(handle: u64) -> Outcome {
    let mut state = lock()?;
    let handle = state.context_or_current(handle)?;
    capture::context_call(&mut state, handle)?;
    let timeline = state.contexts.get(handle)?.timeline;
    let all = state.model.record_context(timeline);
    state.wait_and_see(&all);
    Ok(())
}

/// Returns the context argument of a function that CUDA 13 added beside one without.
///
/// An older driver does not export the new function. numba 0.61 takes the highest suffix that
/// `dlsym` finds, and so calls the old function there. Here it finds the new one and passes no such
/// argument: below version 13000 the argument is ignored.
fn given(context: u64) -> u64 {
    if settings().version < 13000 {
        0
    } else {
        context
    }
}

impl Guard {
    /// Waits for all work of a context. Freeing its memory does so.
    pub fn synchronize_context(&mut self, context: u64) {
        if let Ok(context) = self.contexts.get(context) {
            let timeline = context.timeline;
            let all = self.model.record_context(timeline);
            self.wait_and_see(&all);
        }
    }
}

api! {
    /// Makes a context and makes it current.
    cuCtxCreate 2000 => fn cuCtxCreate(context: Out<u64>, flags: u32, device: i32) {
        create(context, flags, device)
    }
    /// Makes a context and makes it current.
    cuCtxCreate 3020 => fn cuCtxCreate_v2(context: Out<u64>, flags: u32, device: i32) {
        create(context, flags, device)
    }
    /// Makes a context with execution affinity, which this device does not support.
    cuCtxCreate 11040 => fn cuCtxCreate_v3(context: Out<u64>, _affinity: In<u8>, affinities: i32, flags: u32, device: i32) {
        match affinities {
            0 => create(context, flags, device),
            _ => Err(crate::codes::NOT_SUPPORTED),
        }
    }
    /// Makes a context by parameters. Any parameter that is set is refused as not supported.
    cuCtxCreate 12050 => fn cuCtxCreate_v4(context: Out<u64>, params: In<[u64; 3]>, flags: u32, device: i32) {
        match params.get() {
            Ok([affinity, count, cig]) if affinity != 0 || count as u32 != 0 || cig != 0 => Err(crate::codes::NOT_SUPPORTED),
            _ => create(context, flags, device),
        }
    }
    /// Destroys a context that `cuCtxCreate` made.
    cuCtxDestroy 2000 => fn cuCtxDestroy(context: u64) {
        destroy(context)
    }
    /// Destroys a context that `cuCtxCreate` made.
    cuCtxDestroy 4000 => fn cuCtxDestroy_v2(context: u64) {
        destroy(context)
    }
    /// Pushes a context onto the thread's stack and so makes it current.
    cuCtxPushCurrent 2000 => fn cuCtxPushCurrent(context: u64) {
        push(context)
    }
    /// Pushes a context onto the thread's stack and so makes it current.
    cuCtxPushCurrent 4000 => fn cuCtxPushCurrent_v2(context: u64) {
        push(context)
    }
    /// Pops the current context from the thread's stack.
    cuCtxPopCurrent 2000 => fn cuCtxPopCurrent(context: Out<u64>) {
        pop(context)
    }
    /// Pops the current context from the thread's stack.
    cuCtxPopCurrent 4000 => fn cuCtxPopCurrent_v2(context: Out<u64>) {
        pop(context)
    }
    /// Replaces the top of the thread's stack by a context.
    cuCtxSetCurrent 4000 => fn cuCtxSetCurrent(context: u64) {
        let state = lock()?;
        // A destroyed context can become current. Calls that need it then fail.
        if context != 0 && !state.contexts.contains(context) && !state.was_context(context) {
            return Err(INVALID_CONTEXT);
        }
        thread::set(context);
        Ok(())
    }
    /// Returns the current context, 0 if none.
    cuCtxGetCurrent 4000 => fn cuCtxGetCurrent(context: Out<u64>) {
        lock()?;
        context.put(thread::current())
    }
    /// Returns the device of the current context.
    cuCtxGetDevice 2000 => fn cuCtxGetDevice(device: Out<i32>) {
        let state = lock()?;
        let current = thread::current();
        let primary = state.devices.iter().position(|device| device.primary == current && current != 0);
        let known = primary.map(|ordinal| ordinal as i32).or(state.gone.get(&current).copied());
        match known {
            // Known even after a reset and for a destroyed context.
            Some(ordinal) => device.put(ordinal),
            None => device.put(state.contexts.get(state.current()?)?.device),
        }
    }
    /// Returns the device of a context.
    cuCtxGetDevice 13000 => fn cuCtxGetDevice_v2(device: Out<i32>, context: u64) {
        let state = lock()?;
        device.put(state.contexts.get(state.context_or_current(given(context))?)?.device)
    }
    /// Returns the flags of the current context.
    cuCtxGetFlags 7000 => fn cuCtxGetFlags(flags: Out<u32>) {
        let state = lock()?;
        flags.put(state.contexts.get(state.current()?)?.flags)
    }
    /// Changes the flags of the current context.
    cuCtxSetFlags 12010 => fn cuCtxSetFlags(flags: u32) {
        let mut state = lock()?;
        let current = state.current()?;
        state.contexts.get_mut(current)?.flags = flags;
        Ok(())
    }
    /// Returns a number that no other context of the process has.
    cuCtxGetId 12000 => fn cuCtxGetId(context: u64, id: Out<u64>) {
        let state = lock()?;
        id.put(state.contexts.get(state.context_or_current(context)?)?.id)
    }
    /// Returns the API version of a context, always 3020.
    cuCtxGetApiVersion 3020 => fn cuCtxGetApiVersion(context: u64, version: Out<u32>) {
        lock()?.context_or_current(context)?;
        version.put(3020)
    }
    /// Waits for all work of the current context.
    cuCtxSynchronize 2000 => fn cuCtxSynchronize() {
        synchronize(0)
    }
    /// Waits for all work of a context.
    cuCtxSynchronize 13000 => fn cuCtxSynchronize_v2(context: u64) {
        synchronize(given(context))
    }
    /// Returns one limit of the current context.
    cuCtxGetLimit 3010 => fn cuCtxGetLimit(value: Out<usize>, limit: u32) {
        let state = lock()?;
        let default = default_limit(limit)?;
        let context = state.contexts.get(state.current()?)?;
        value.put(context.limits.get(&limit).copied().unwrap_or(default))
    }
    /// Changes one limit of the current context.
    cuCtxSetLimit 3010 => fn cuCtxSetLimit(limit: u32, value: usize) {
        let mut state = lock()?;
        default_limit(limit)?;
        let current = state.current()?;
        state.contexts.get_mut(current)?.limits.insert(limit, value);
        Ok(())
    }
    /// Returns the range of stream priorities, lowest first.
    cuCtxGetStreamPriorityRange 5050 => fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        lock()?.current()?;
        least.maybe(crate::stream::PRIORITIES.0);
        greatest.maybe(crate::stream::PRIORITIES.1);
        Ok(())
    }
    /// Returns the cache preference, always none.
    cuCtxGetCacheConfig 3020 => fn cuCtxGetCacheConfig(config: Out<u32>) {
        lock()?.current()?;
        config.put(0)
    }
    cuCtxSetCacheConfig 3020 => fn cuCtxSetCacheConfig(_config: u32) {
        lock()?.current().map(drop)
    }
    /// Returns the shared memory bank size, always the default.
    cuCtxGetSharedMemConfig 4020 => fn cuCtxGetSharedMemConfig(config: Out<u32>) {
        lock()?.current()?;
        config.put(1)
    }
    cuCtxSetSharedMemConfig 4020 => fn cuCtxSetSharedMemConfig(_config: u32) {
        lock()?.current().map(drop)
    }
    /// Accepts a reset of persisting L2 cache lines without effect.
    cuCtxResetPersistingL2Cache 11000 => fn cuCtxResetPersistingL2Cache() {
        lock()?.current().map(drop)
    }
    /// Records an event after all work of a context.
    cuCtxRecordEvent 12050 => fn cuCtxRecordEvent(context: u64, event: u64) {
        let mut state = lock()?;
        state.contexts.get(context).map_err(|_| INVALID_CONTEXT)?;
        capture::context_call(&mut state, context)?;
        crate::event::record_context(&mut state, context, event)
    }
    /// Makes all later work of a context wait for an event.
    cuCtxWaitEvent 12050 => fn cuCtxWaitEvent(context: u64, event: u64) {
        let mut state = lock()?;
        state.contexts.get(context).map_err(|_| INVALID_CONTEXT)?;
        capture::context_call(&mut state, context)?;
        crate::event::wait_context(&mut state, context, event)
    }
}
