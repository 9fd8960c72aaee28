//! Green contexts: contexts on a part of a device's processors. Their memory is the primary
//! context's.
//!
//! Seen on an H100: a green context has a `CUcontext` of its own, which its streams report as
//! theirs. Memory allocated with it current, or on its streams, outlives it.

use crate::abi::{Out, STREAM_NON_BLOCKING};
use crate::codes::{INVALID_VALUE, Outcome};
use crate::state::{Guard, State, lock};
use crate::timeline::Kind;
use crate::{context, primary};

/// Bit of a green context's handle that distinguishes it from the handle of its `CUcontext`.
const GREEN: u64 = 1 << 55;

impl State {
    /// Returns the context that owns memory allocated in `context`.
    pub fn owner(&self, context: u64) -> u64 {
        let green = self.contexts.get(context).ok();
        green.and_then(|green| green.green_of).unwrap_or(context)
    }
}

fn of(state: &Guard, green: u64) -> Outcome<u64> {
    let context = green & !GREEN;
    let is_green = |context: &context::Context| context.green_of.is_some();
    match state.contexts.get(context) {
        Ok(found) if green & GREEN != 0 && is_green(found) => Ok(context),
        _ => Err(INVALID_VALUE),
    }
}

api! {
    /// Makes a green context, which retains its device's primary context. The choice of processors
    /// makes no difference here.
    cuGreenCtxCreate 12040 => fn cuGreenCtxCreate(green: Out<u64>, processors: u64, device: i32, _flags: u32) {
        green.required()?;
        if processors == 0 {
            return Err(INVALID_VALUE);
        }
        let mut state = lock()?;
        let primary = primary::retain(&mut state, device)?;
        let context = state.open_context(0, device, 0);
        state.contexts.get_mut(context)?.green_of = Some(primary);
        green.put(context | GREEN)
    }
    /// Destroys a green context with its streams and events.
    cuGreenCtxDestroy 12040 => fn cuGreenCtxDestroy(green: u64) {
        let mut state = lock()?;
        let context = of(&state, green)?;
        let device = state.contexts.get(context)?.device;
        context::close(&mut state, context)?;
        state.note_gone(context, device);
        primary::release_one(&mut state, device)
    }
    /// Returns the `CUcontext` of a green context.
    cuCtxFromGreenCtx 12040 => fn cuCtxFromGreenCtx(context: Out<u64>, green: u64) {
        let state = lock()?;
        context.put(of(&state, green)?)
    }
    /// Makes a stream of a green context.
    cuGreenCtxStreamCreate 12050 => fn cuGreenCtxStreamCreate(stream: Out<u64>, green: u64, flags: u32, priority: i32) {
        stream.required()?;
        if flags != STREAM_NON_BLOCKING {
            return Err(INVALID_VALUE);
        }
        let mut state = lock()?;
        let context = of(&state, green)?;
        stream.put(state.open_stream(context, Kind::NonBlocking, flags, priority)?)
    }
}
