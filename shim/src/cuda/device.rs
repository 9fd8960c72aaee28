//! The driver as pools use it: reusable CUDA events, and the devices of contexts.

use std::sync::Mutex;

use gpushim_alloc::Context;
use gpushim_alloc::gate::{self, Pass};

use crate::cuda::context;
use crate::cuda::functions::real;
use crate::cuda::types::{CONTEXT_IS_DESTROYED, CUresult, check};

/// The driver's `CU_EVENT_DISABLE_TIMING`: such events are the cheapest to record.
const DISABLE_TIMING: u32 = 2;

/// A driver event and the context that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    context: Context,
    handle: u64,
    /// Number of contexts that had ended before it was made. With the context's handle it shows if
    /// that context still lives.
    born: u64,
}

impl Event {
    /// Returns the number of contexts that had ended before it was made.
    pub fn born(self) -> u64 {
        self.born
    }

    /// Returns the context that it belongs to.
    pub fn context(self) -> Context {
        self.context
    }

    /// Begins a call that uses it.
    ///
    /// # Errors
    /// [`CONTEXT_IS_DESTROYED`] if its context has ended.
    pub fn enter(self) -> Result<Pass, CUresult> {
        gate::enter_since(self.context, self.born).ok_or(CONTEXT_IS_DESTROYED)
    }

    /// Returns the driver's handle.
    pub fn raw(self) -> *mut std::ffi::c_void {
        self.handle as *mut _
    }
}

/// The driver of this process.
#[derive(Clone, Copy)]
pub struct Cuda;

/// Events that wait to be used again.
static EVENTS: Mutex<Vec<Event>> = Mutex::new(Vec::new());
/// Contexts with the ordinals of their devices, as far as the driver was asked.
static ORDINALS: Mutex<Vec<(Context, i32)>> = Mutex::new(Vec::new());

/// Begins a call in a context.
///
/// # Errors
/// [`CONTEXT_IS_DESTROYED`] if the context has ended.
pub fn enter(context: Context) -> Result<Pass, CUresult> {
    gate::enter(context).ok_or(CONTEXT_IS_DESTROYED)
}

/// Returns the pass of a call for a context's work. `None`: the context has ended, and has no work
/// left.
///
/// # Errors
/// The error of the pass, if the context has not ended.
pub fn unless_ended(pass: Result<Pass, CUresult>) -> Result<Option<Pass>, CUresult> {
    match pass {
        Err(CONTEXT_IS_DESTROYED) => Ok(None),
        pass => pass.map(Some),
    }
}

impl Cuda {
    /// Forgets the events of a context that has ended; they ended with it.
    pub fn forget(&self, context: Context) {
        if let Ok(mut events) = EVENTS.lock() {
            events.retain(|event| event.context != context);
        }
        if let Ok(mut ordinals) = ORDINALS.lock() {
            ordinals.retain(|&(known, _)| known != context);
        }
    }

    /// Returns an event of a context: one that waits, or a new one.
    pub fn event(&self, context: Context) -> Result<Event, CUresult> {
        if let Ok(mut events) = EVENTS.lock()
            && let Some(at) = events.iter().rposition(|event| event.context == context)
        {
            let event = events.swap_remove(at);
            if gate::lives(context, event.born) {
                return Ok(event);
            }
        }
        let mut handle = std::ptr::null_mut();
        let born = gate::ends();
        // SAFETY: `handle` is ours to write.
        check(context::with(context, || unsafe {
            real::cuEventCreate(&mut handle, DISABLE_TIMING)
        })?)?;
        Ok(Event {
            context,
            handle: handle as u64,
            born,
        })
    }

    /// Stores an event that is not used any more, to be used again.
    pub fn put_back(&self, event: Event) {
        if gate::lives(event.context, event.born)
            && let Ok(mut events) = EVENTS.lock()
        {
            events.push(event);
        }
    }

    /// Returns the ordinal of a context's device.
    ///
    /// # Errors
    /// The driver's; [`CONTEXT_IS_DESTROYED`] if the context has ended.
    pub fn ordinal_of(&self, context: Context) -> Result<i32, CUresult> {
        if let Ok(ordinals) = ORDINALS.lock()
            && let Some(&(_, device)) = ordinals.iter().find(|&&(known, _)| known == context)
        {
            return Ok(device);
        }
        let _pass = enter(context)?;
        let mut device = 0;
        // SAFETY: `device` is ours to write.
        check(context::with(context, || unsafe {
            real::cuCtxGetDevice(&mut device)
        })?)?;
        if let Ok(mut ordinals) = ORDINALS.lock() {
            ordinals.push((context, device));
        }
        Ok(device)
    }

    /// Returns the ordinal of a context's device, if it was asked for before.
    pub fn known_ordinal(&self, context: Context) -> Option<i32> {
        let ordinals = ORDINALS.lock().ok()?;
        let at = ordinals.iter().find(|&&(known, _)| known == context)?;
        Some(at.1)
    }
}

/// Returns the driver that all pools call.
pub fn driver() -> &'static Cuda {
    &Cuda
}
