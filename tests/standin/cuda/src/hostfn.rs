//! Host functions in a stream's order, and effects of later work that wait for them.

use std::sync::Arc;

use crate::abi::{HostFn, StreamCallback, UserData};
use crate::api::Via;
use crate::clock::Lane;
use crate::codes::{INVALID_VALUE, Outcome};
use crate::finish::Gate;
use crate::oracle::What;
use crate::state::{Guard, lock, now, wake};
use crate::work::{Call, Copy, Place, Side, Work};

/// Effects that wait for gates, in the order of submission.
#[derive(Default)]
pub struct Pending(Vec<Deferred>);

struct Deferred {
    gates: Vec<Arc<Gate>>,
    work: Work,
    /// Bytes of a pageable source at submission.
    staged: Option<Vec<u8>>,
}

/// Keeps an effect until its gates are open.
pub fn defer(state: &mut Guard, gates: Vec<Arc<Gate>>, work: Work) {
    let mut deferred = Deferred {
        gates,
        work,
        staged: None,
    };
    if let Work::Copy(copy) = &mut deferred.work
        && !state.memory.is_known(copy.src.place, copy.src.address)
    {
        // The driver reads pageable bytes during the call.
        let mut bytes = vec![0u8; (copy.width * copy.height * copy.depth) as usize];
        let staged = Side {
            place: Place::Host,
            address: bytes.as_mut_ptr() as u64,
            pitch: copy.width,
            slice: copy.width * copy.height,
        };
        Work::Copy(Copy {
            dst: staged,
            ..*copy
        })
        .run();
        copy.src = staged;
        deferred.staged = Some(bytes);
    }
    state.hostfn.0.push(deferred);
}

fn run_deferred(state: &mut Guard) {
    let waiting = std::mem::take(&mut state.hostfn.0);
    for deferred in waiting {
        if deferred.gates.iter().any(|gate| gate.opened().is_none()) {
            state.hostfn.0.push(deferred);
            continue;
        }
        let touches = deferred.work.touches(state);
        let is_safe = touches
            .iter()
            .all(|touch| state.memory.check(&touch.bytes).is_ok());
        if is_safe {
            deferred.work.run();
        }
        drop(deferred.staged);
    }
}

/// Makes another thread call the function when the lane reaches it. The lane continues after the
/// call.
pub fn schedule(state: &mut Guard, lane: Lane, call: Call) {
    state.model.submit(lane, What::Host, &[], 0, now());
    let before = state.model.target(lane);
    let gate = Gate::closed();
    state.model.hold(lane, gate.clone());
    std::thread::spawn(move || {
        let call = call;
        let Ok(mut state) = lock() else { return };
        // The work before the call must be complete, since other threads can learn of the call.
        state.wait_and_see(&before);
        state.unlocked(|| {
            if let Some(function) = call.function {
                // SAFETY: the program gave the function with its argument for this purpose.
                unsafe { function(call.data) }
            }
        });
        gate.open(now());
        run_deferred(&mut state);
        drop(state);
        wake();
    });
}

struct Callback {
    function: unsafe extern "C" fn(u64, u32, UserData),
    stream: u64,
    data: UserData,
}

unsafe extern "C" fn call_back(data: UserData) {
    // SAFETY: `cuStreamAddCallback` made it from a box, for one call.
    let callback = unsafe { Box::from_raw(data.cast::<Callback>()) };
    // SAFETY: the program gave the function with its argument for this purpose.
    unsafe { (callback.function)(callback.stream, 0, callback.data) }
}

fn submit(via: Via, stream: u64, call: Call) -> Outcome {
    let mut state = lock()?;
    let key = state.stream(via, stream)?;
    crate::work::submit(&mut state, key, Work::Host(call))
}

api! {
    /// Calls a host function in the stream's order.
    cuLaunchHostFunc 10000 => fn cuLaunchHostFunc | cuLaunchHostFunc_ptsz[via](stream: u64, function: HostFn, data: UserData) {
        function.ok_or(INVALID_VALUE)?;
        submit(via, stream, Call { function, data })
    }
    /// Calls a host function in the stream's order, with stream and status as arguments.
    cuStreamAddCallback 5000 => fn cuStreamAddCallback | cuStreamAddCallback_ptsz[via](stream: u64, function: StreamCallback, data: UserData, flags: u32) {
        let function = function.ok_or(INVALID_VALUE)?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        // During capture the function would have to run at each launch: the driver refuses it.
        let mut state = lock()?;
        let key = state.stream(via, stream)?;
        if crate::capture::is_in_capture(&state, key)? {
            return crate::capture::refuse(&mut state, key);
        }
        drop(state);
        let callback = Box::new(Callback { function, stream, data });
        submit(via, stream, Call { function: Some(call_back), data: Box::into_raw(callback).cast() })
    }
}
