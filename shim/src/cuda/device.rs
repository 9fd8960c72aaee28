//! A store of reusable CUDA events, and the devices of contexts: what pools use of the driver.

use std::sync::Mutex;

use gpushim_alloc::Context;
use gpushim_alloc::gate::{self, Pass};

use crate::cuda::context;
use crate::cuda::functions::real;
use crate::cuda::types::{CONTEXT_IS_DESTROYED, CUresult, check};

/// `CU_EVENT_DISABLE_TIMING`: such events are the cheapest to record.
const DISABLE_TIMING: u32 = 2;

/// A driver event and the context that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    context: Context,
    handle: u64,
    /// Ends of contexts before it was made: with the handle of its context it tells whether that lives.
    born: u64,
}

impl Event {
    /// Ends of contexts before it was made.
    pub fn born(self) -> u64 {
        self.born
    }

    /// The context that it belongs to.
    pub fn context(self) -> Context {
        self.context
    }

    /// A call of ours that uses it begins.
    ///
    /// # Errors
    /// [`CONTEXT_IS_DESTROYED`] if its context has ended.
    pub fn enter(self) -> Result<Pass, CUresult> {
        gate::enter_since(self.context, self.born).ok_or(CONTEXT_IS_DESTROYED)
    }

    /// The driver's handle.
    pub fn raw(self) -> *mut std::ffi::c_void {
        self.handle as *mut _
    }
}

/// The driver of this process.
#[derive(Clone, Copy)]
pub struct Cuda;

/// Events that wait to be used again.
static EVENTS: Mutex<Vec<Event>> = Mutex::new(Vec::new());
/// Contexts that were asked about, with the ordinals of their devices.
static ORDINALS: Mutex<Vec<(Context, i32)>> = Mutex::new(Vec::new());

/// A call of ours in a context begins.
///
/// # Errors
/// [`CONTEXT_IS_DESTROYED`] if the context has ended.
pub fn enter(context: Context) -> Result<Pass, CUresult> {
    gate::enter(context).ok_or(CONTEXT_IS_DESTROYED)
}

/// The pass of a call about work of a context. `None`: the context is closed, and has no work left.
///
/// # Errors
/// The reason against the call, where the context has not ended.
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

    /// An event of a context, from those that wait or a new one.
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

    /// An event that is used no more waits to be used again.
    pub fn put_back(&self, event: Event) {
        if gate::lives(event.context, event.born)
            && let Ok(mut events) = EVENTS.lock()
        {
            events.push(event);
        }
    }

    /// The ordinal of a context's device.
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

    /// The ordinal of a context's device, if it was asked for before.
    pub fn known_ordinal(&self, context: Context) -> Option<i32> {
        let ordinals = ORDINALS.lock().ok()?;
        let at = ordinals.iter().find(|&&(known, _)| known == context)?;
        Some(at.1)
    }
}

/// The calls that all pools make.
pub fn driver() -> &'static Cuda {
    &Cuda
}
