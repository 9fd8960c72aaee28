//! Claims on contexts: an interface of CUDA 2.

use crate::abi::Out;
use crate::codes::{INVALID_CONTEXT, INVALID_VALUE};
use crate::context;
use crate::state::lock;

api! {
    /// Adds a claim on the current context.
    cuCtxAttach 2000 => fn cuCtxAttach(context: Out<u64>, flags: u32) {
        context.required()?;
        let mut state = lock()?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let current = state.current()?;
        state.contexts.get_mut(current)?.attached += 1;
        context.put(current)
    }
    /// Drops a claim on the current context. Without further claims, destroys it.
    cuCtxDetach 2000 => fn cuCtxDetach(context: u64) {
        let mut state = lock()?;
        if state.current()? != context {
            return Err(INVALID_CONTEXT);
        }
        let found = state.contexts.get_mut(context)?;
        if found.attached == 0 {
            drop(state);
            return context::destroy(context);
        }
        found.attached -= 1;
        Ok(())
    }
}
