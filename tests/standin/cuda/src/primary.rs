//! Primary contexts: one for each device, shared by all users that retain it.

use crate::abi::Out;
use crate::codes::{INVALID_CONTEXT, INVALID_VALUE, Outcome};
use crate::state::{Guard, lock};

/// Retains a device's primary context, and makes it active.
pub fn retain(state: &mut Guard, device: i32) -> Outcome<u64> {
    let primary = state.device(device)?;
    primary.retains += 1;
    let (handle, flags) = (primary.primary, primary.primary_flags);
    let handle = match state.contexts.contains(handle) {
        true => handle,
        false => state.open_context(handle, device, flags),
    };
    state.device(device)?.primary = handle;
    Ok(handle)
}

/// Releases a device's primary context once. The last release destroys it.
pub fn release_one(state: &mut Guard, device: i32) -> Outcome {
    let primary = state.device(device)?;
    match primary.retains {
        0 => return Err(INVALID_CONTEXT),
        1 => {}
        _ => {
            primary.retains -= 1;
            return Ok(());
        }
    }
    primary.retains = 0;
    close(state, device)
}

fn release(device: i32) -> Outcome {
    release_one(&mut lock()?, device)
}

fn reset(device: i32) -> Outcome {
    let mut state = lock()?;
    // Retain counts survive a reset: each user must still release the context.
    close(&mut state, device)
}

fn close(state: &mut Guard, device: i32) -> Outcome {
    let handle = state.device(device)?.primary;
    match state.contexts.contains(handle) {
        true => crate::context::close(state, handle),
        false => Ok(()),
    }
}

fn set_flags(device: i32, flags: u32) -> Outcome {
    let mut state = lock()?;
    let primary = state.device(device)?;
    primary.primary_flags = flags;
    let handle = primary.primary;
    if let Ok(context) = state.contexts.get_mut(handle) {
        context.flags = flags;
    }
    Ok(())
}

api! {
    /// Retains a device's primary context, and makes it active.
    cuDevicePrimaryCtxRetain 7000 => fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: i32) {
        context.required()?;
        let mut state = lock()?;
        context.put(retain(&mut state, device)?)
    }
    /// Releases a device's primary context once.
    cuDevicePrimaryCtxRelease 7000 => fn cuDevicePrimaryCtxRelease(device: i32) {
        release(device)
    }
    /// Releases a device's primary context once.
    cuDevicePrimaryCtxRelease 11000 => fn cuDevicePrimaryCtxRelease_v2(device: i32) {
        release(device)
    }
    /// Destroys a primary context with everything in it.
    cuDevicePrimaryCtxReset 7000 => fn cuDevicePrimaryCtxReset(device: i32) {
        reset(device)
    }
    /// Destroys a primary context with everything in it.
    cuDevicePrimaryCtxReset 11000 => fn cuDevicePrimaryCtxReset_v2(device: i32) {
        reset(device)
    }
    /// Changes the flags of a primary context.
    cuDevicePrimaryCtxSetFlags 7000 => fn cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) {
        set_flags(device, flags)
    }
    /// Changes the flags of a primary context.
    cuDevicePrimaryCtxSetFlags 11000 => fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) {
        set_flags(device, flags)
    }
    /// Returns the flags of a primary context, and 1 if it is active.
    cuDevicePrimaryCtxGetState 7000 => fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) {
        let mut state = lock()?;
        let primary = state.device(device)?;
        if flags.is_null() || active.is_null() {
            return Err(INVALID_VALUE);
        }
        let handle = primary.primary;
        flags.put(primary.primary_flags)?;
        active.put(i32::from(state.contexts.contains(handle)))
    }
}
