//! Events and waits for all work of one context.

use gpushim_alloc::{Context, gate};

use crate::base::thread;
use crate::cuda::captures::{self, relaxed};
use crate::cuda::context;
use crate::cuda::device::{Cuda, Event, enter, unless_ended};
use crate::cuda::functions::{self, real, slots};
use crate::cuda::types::{CONTEXT_IS_DESTROYED, CUresult, SUCCESS, check};

/// The driver's `CUDA_ERROR_NOT_READY`.
const NOT_READY: CUresult = 600;

impl Cuda {
    /// Records an event that completes with all work submitted to the context before this call.
    /// `None`: the driver has no such event.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn record_in(&self, context: Context) -> Result<Option<Event>, CUresult> {
        if functions::address(&slots::cuCtxRecordEvent).is_none() {
            return Ok(None);
        }
        let _pass = captures::enter(context, u64::MAX)?;
        let event = self.event(context)?;
        // SAFETY: both handles are live; the event belongs to the context.
        let result =
            thread::call(|| unsafe { real::cuCtxRecordEvent(context.0 as *mut _, event.raw()) });
        if result != SUCCESS {
            self.put_back(event);
        }
        check(result).map(|()| Some(event))
    }

    /// Makes all work submitted to the context after this call wait, on the device, for one event.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn order_in(&self, context: Context, event: Event) -> Result<(), CUresult> {
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

    /// True if one event has completed. Never waits.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn has_completed(&self, event: Event) -> Result<bool, CUresult> {
        // While a stream captures, the driver refuses the query unless the thread's mode allows it.
        // A query in the relaxed mode delays no capture that begins, so it enters quietly. Every
        // other query is loud, also if the last capture ends in between.
        let (context, born) = (event.context(), event.born());
        let is_quiet = captures::any();
        let pass = match is_quiet {
            true => gate::enter_since(context, born),
            false => gate::enter_loud(context, born),
        };
        let Some(_pass) = pass else {
            return Ok(true);
        };
        // SAFETY: the event is live.
        let query = || thread::call(|| unsafe { real::cuEventQuery(event.raw()) });
        let answer = if is_quiet || captures::any() {
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

    /// Waits on the host for one event. Legal while a stream captures.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn wait_for(&self, event: Event) -> Result<(), CUresult> {
        let Some(_pass) = unless_ended(event.enter())? else {
            return Ok(());
        };
        check(thread::timed(|| {
            // SAFETY: the event is live.
            relaxed(|| unsafe { real::cuEventSynchronize(event.raw()) })
        }))
    }

    /// Waits on the host for all work of the context.
    ///
    /// # Errors
    /// The driver's.
    pub fn synchronize(&self, context: Context) -> Result<(), CUresult> {
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

    /// Returns free and total bytes of the context's device, by the driver's count.
    ///
    /// # Errors
    /// The driver's.
    pub fn memory_of(&self, context: Context) -> Result<(u64, u64), CUresult> {
        let _pass = enter(context)?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are ours to write.
        check(context::with(context, || unsafe {
            real::cuMemGetInfo_v2(&mut free, &mut total)
        })?)?;
        Ok((free as u64, total as u64))
    }
}
