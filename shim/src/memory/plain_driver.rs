//! The CUDA driver as the pool of `cudaMalloc` calls it (`device_pool::Device`): driver allocations, and events of contexts.

use gpushim_alloc::device_pool::Device;
use gpushim_alloc::gate;
use gpushim_alloc::{Address, Context};
use gpushim_trace::{Class, Kind};

use crate::base::thread;
use crate::cuda::captures::{self, relaxed};
use crate::cuda::context;
use crate::cuda::device::{Cuda, Event, enter, unless_ended};
use crate::cuda::functions::{self, real, slots};
use crate::cuda::types::{
    CAPTURE_UNSUPPORTED, CONTEXT_IS_DESTROYED, CUresult, OUT_OF_MEMORY, SUCCESS, check,
};
use crate::memory::budget::{self, Place};
use crate::memory::drain;
use crate::record::events;

/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: CUresult = 600;

/// Records a segment that came from the driver or goes back to it.
fn segment(driver: &Cuda, kind: Kind, context: Context, address: Address, bytes: u64) {
    let known = driver.known_ordinal(context);
    let known = known.and_then(|device| u8::try_from(device).ok());
    events::segment(kind, Class::Device, context, known, address, bytes);
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

    fn is_end(error: CUresult) -> bool {
        error == CONTEXT_IS_DESTROYED
    }

    fn ordinal(&self, context: Context) -> Result<i32, CUresult> {
        self.ordinal_of(context)
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
        claim.keep(Place::of_block(context, address, bytes), bytes);
        segment(self, Kind::Reserve, context, address, bytes);
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
        segment(self, Kind::Release, context, address, bytes);
        let result = check(thread::timed(|| {
            context::with(context, || {
                // SAFETY: the pool releases what `allocate` returned, once.
                relaxed(|| unsafe { real::cuMemFree_v2(address) })
            })
        })?);
        budget::give(Place::of_block(context, address, bytes));
        result
    }

    fn record(&self, context: Context) -> Result<Option<Event>, CUresult> {
        if functions::address(&slots::cuCtxRecordEvent).is_none() {
            return Ok(None);
        }
        let _pass = captures::enter(context, u64::MAX)?;
        let event = self.event(context)?;
        // SAFETY: both handles are live; the event belongs to the context.
        let result =
            thread::call(|| unsafe { real::cuCtxRecordEvent(context.0 as *mut _, event.raw()) });
        if result != SUCCESS {
            self.retire(event);
        }
        check(result).map(|()| Some(event))
    }

    fn order(&self, context: Context, event: Event) -> Result<(), CUresult> {
        let is_own = event.context() == context;
        let born = if is_own { event.born() } else { u64::MAX };
        let Some(_pass) = unless_ended(captures::enter(context, born))? else {
            return Ok(());
        };
        let other = if is_own { None } else { Some(event.enter()) };
        if let Some(Err(CONTEXT_IS_DESTROYED)) = other {
            return Ok(());
        }
        // SAFETY: both handles are live.
        check(thread::call(|| unsafe {
            real::cuCtxWaitEvent(context.0 as *mut _, event.raw())
        }))
    }

    fn is_complete(&self, event: Event) -> Result<bool, CUresult> {
        // The driver refuses the question while a stream captures that the mode doesn't allow it for.
        let Some(_pass) = gate::enter_loud(event.context(), event.born()) else {
            return Ok(true);
        };
        // SAFETY: the event is live.
        let query = || thread::call(|| unsafe { real::cuEventQuery(event.raw()) });
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
        let Some(_pass) = unless_ended(event.enter())? else {
            return Ok(());
        };
        check(thread::timed(|| {
            // SAFETY: the event is live.
            relaxed(|| unsafe { real::cuEventSynchronize(event.raw()) })
        }))
    }

    fn retire(&self, event: Event) {
        self.put_back(event);
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
        let Some(_pass) = unless_ended(captures::enter(context, u64::MAX))? else {
            return Ok(());
        };
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
