//! The pool's device: the real driver.

use std::sync::Mutex;

use gpushim_core::gate::{self, Pass};
use gpushim_core::pool::{Address, Context, Device};
use gpushim_core::trace::{Class, Kind};

use crate::base::thread;
use crate::cuda::functions::{self, real, slots};
use crate::cuda::types::{
    CAPTURE_UNSUPPORTED, CONTEXT_IS_DESTROYED, CUresult, OUT_OF_MEMORY, SUCCESS,
};
use crate::cuda::{captures, context};
use crate::memory::{budget, drain};
use crate::record::events;

/// `CU_EVENT_DISABLE_TIMING`: such events are the cheapest to record.
const DISABLE_TIMING: u32 = 2;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: CUresult = 600;

/// A driver event and the context that it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    context: Context,
    handle: u64,
    /// Ends of contexts before it was made: with the handle of its context it tells whether that lives.
    born: u64,
}

impl Event {
    /// The context that it belongs to.
    pub fn context(self) -> Context {
        self.context
    }

    /// A call of ours that uses it begins.
    fn enter(self) -> Result<Pass, CUresult> {
        gate::enter_since(self.context, self.born).ok_or(CONTEXT_IS_DESTROYED)
    }

    /// The driver's handle.
    pub fn raw(self) -> *mut std::ffi::c_void {
        self.handle as *mut _
    }
}

/// The driver, with the events that wait to be used again.
pub struct Cuda {
    events: Mutex<Vec<Event>>,
    /// Contexts that the pool asked about, with their devices.
    ordinals: Mutex<Vec<(Context, i32)>>,
}

/// A call of ours in a context begins.
fn enter(context: Context) -> Result<Pass, CUresult> {
    gate::enter(context).ok_or(CONTEXT_IS_DESTROYED)
}

/// A driver's answer as a result.
pub fn check(result: CUresult) -> Result<(), CUresult> {
    if result == SUCCESS {
        Ok(())
    } else {
        Err(result)
    }
}

impl Cuda {
    /// The driver of this process.
    pub const fn new() -> Self {
        Cuda {
            events: Mutex::new(Vec::new()),
            ordinals: Mutex::new(Vec::new()),
        }
    }

    /// Forgets the events of a context that has ended; they ended with it.
    pub fn forget(&self, context: Context) {
        if let Ok(mut events) = self.events.lock() {
            events.retain(|event| event.context != context);
        }
        if let Ok(mut ordinals) = self.ordinals.lock() {
            ordinals.retain(|&(known, _)| known != context);
        }
    }

    /// Records a segment that came from the driver or goes back to it.
    fn segment(&self, kind: Kind, context: Context, address: Address, bytes: u64) {
        let ordinals = self.ordinals.lock();
        let known = ordinals.ok().and_then(|known| {
            let at = known.iter().find(|&&(known, _)| known == context)?;
            u8::try_from(at.1).ok()
        });
        events::segment(kind, Class::Device, context, known, address, bytes);
    }

    /// An event of a context, from those that wait or a new one.
    pub fn event(&self, context: Context) -> Result<Event, CUresult> {
        if let Ok(mut events) = self.events.lock()
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
}

/// Runs a call that a capture would forbid or be spoiled by, in the mode that allows it: a capture may begin in
/// another thread while the call is made.
pub fn relaxed<R>(f: impl FnOnce() -> R) -> R {
    let mut mode = captures::RELAXED;
    // SAFETY: `mode` is ours; the call swaps it with the thread's mode.
    let swapped = unsafe { real::cuThreadExchangeStreamCaptureMode(&mut mode) } == SUCCESS;
    let result = f();
    if swapped {
        // SAFETY: as above; this puts the thread's own mode back.
        unsafe { real::cuThreadExchangeStreamCaptureMode(&mut mode) };
    }
    result
}

impl Device for Cuda {
    type Error = CUresult;
    type Event = Event;

    const OUT_OF_MEMORY: CUresult = OUT_OF_MEMORY;

    fn is_out_of_memory(error: CUresult) -> bool {
        error == OUT_OF_MEMORY
    }

    fn is_capture(error: CUresult) -> bool {
        error == CAPTURE_UNSUPPORTED
    }

    fn ordinal(&self, context: Context) -> Result<i32, CUresult> {
        if let Ok(ordinals) = self.ordinals.lock()
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
        if let Ok(mut ordinals) = self.ordinals.lock() {
            ordinals.push((context, device));
        }
        Ok(device)
    }

    fn allocate(&self, context: Context, bytes: u64) -> Result<Address, CUresult> {
        let _pass = enter(context)?;
        let device = match budget::limit() {
            Some(_) => self.ordinal(context)?,
            None => 0,
        };
        let claim = budget::reserve(device, bytes).ok_or(OUT_OF_MEMORY)?;
        let mut address = 0;
        let result = thread::timed(|| {
            context::with(context, || {
                // SAFETY: `address` is ours to write.
                relaxed(|| unsafe { real::cuMemAlloc_v2(&mut address, bytes as usize) })
            })
        })?;
        check(result)?;
        claim.keep_in(context);
        self.segment(Kind::Reserve, context, address, bytes);
        Ok(address)
    }

    fn born(&self) -> u64 {
        gate::ends()
    }

    fn release(
        &self,
        context: Context,
        born: u64,
        address: Address,
        bytes: u64,
    ) -> Result<(), CUresult> {
        let _pass = gate::enter_since(context, born).ok_or(CONTEXT_IS_DESTROYED)?;
        // Logged first: once the driver has it, another thread's allocation may get the same address.
        self.segment(Kind::Release, context, address, bytes);
        let result = check(thread::timed(|| {
            context::with(context, || {
                // SAFETY: the pool releases what `allocate` returned, once.
                relaxed(|| unsafe { real::cuMemFree_v2(address) })
            })
        })?);
        budget::give_in(context, bytes);
        result
    }

    fn record(&self, context: Context) -> Result<Option<Event>, CUresult> {
        if functions::address(&slots::cuCtxRecordEvent).is_none() {
            return Ok(None);
        }
        let _pass = captures::enter(context, u64::MAX)?;
        let event = self.event(context)?;
        // SAFETY: both handles are live; the event belongs to the context.
        let result = thread::call(|| unsafe {
            real::cuCtxRecordEvent(context.0 as *mut _, event.handle as *mut _)
        });
        if result != SUCCESS {
            self.retire(event);
        }
        check(result).map(|()| Some(event))
    }

    fn order(&self, context: Context, event: Event) -> Result<(), CUresult> {
        let is_own = event.context == context;
        let born = if is_own { event.born } else { u64::MAX };
        let _pass = captures::enter(context, born)?;
        let _other = if is_own { None } else { Some(event.enter()?) };
        // SAFETY: both handles are live.
        check(thread::call(|| unsafe {
            real::cuCtxWaitEvent(context.0 as *mut _, event.handle as *mut _)
        }))
    }

    fn is_complete(&self, event: Event) -> Result<bool, CUresult> {
        // The driver refuses the question while a stream captures that the mode doesn't allow it for.
        let _pass = gate::enter_loud(event.context, event.born).ok_or(CONTEXT_IS_DESTROYED)?;
        // SAFETY: the event is live.
        let query = || thread::call(|| unsafe { real::cuEventQuery(event.handle as *mut _) });
        let answer = if captures::any() {
            relaxed(query)
        } else {
            query()
        };
        match answer {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            error => Err(error),
        }
    }

    fn wait(&self, event: Event) -> Result<(), CUresult> {
        let _pass = event.enter()?;
        check(thread::timed(|| {
            // SAFETY: the event is live.
            relaxed(|| unsafe { real::cuEventSynchronize(event.handle as *mut _) })
        }))
    }

    fn retire(&self, event: Event) {
        if gate::lives(event.context, event.born)
            && let Ok(mut events) = self.events.lock()
        {
            events.push(event);
        }
    }

    fn captures(&self, context: Context) -> bool {
        captures::is_in(context)
    }

    fn refusing(&self) -> Vec<u64> {
        captures::refusing()
    }

    fn drain(&self, context: Context) -> Result<(), CUresult> {
        drain::context(context)
    }

    fn synchronize(&self, context: Context) -> Result<(), CUresult> {
        let _pass = captures::enter(context, u64::MAX)?;
        check(thread::timed(|| {
            context::with(context, || {
                // SAFETY: no arguments; the context is current inside.
                relaxed(|| unsafe { real::cuCtxSynchronize() })
            })
        })?)
    }

    fn memory_info(&self, context: Context) -> Result<(u64, u64), CUresult> {
        let _pass = enter(context)?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are ours to write.
        check(context::with(context, || unsafe {
            real::cuMemGetInfo_v2(&mut free, &mut total)
        })?)?;
        Ok((free as u64, total as u64))
    }
}
