//! What the stand-in exports beyond the driver API, for tests.

use crate::abi::{In, Out};
use crate::api::{Via, call};
use crate::codes::CUresult;
use crate::model::Touch;
use crate::state::lock;
use crate::work::Work;

/// Bytes that a modelled kernel touches.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StandinRange {
    /// First byte.
    pub address: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Not 0 if it writes them.
    pub writes: u32,
}

/// Launches a kernel that takes `duration` nanoseconds and touches `count` ranges.
#[unsafe(no_mangle)]
pub extern "C" fn standin_launch(
    stream: u64,
    duration: u64,
    count: u32,
    ranges: In<StandinRange>,
) -> CUresult {
    call("standin_launch", || {
        let touch = |range: StandinRange| Touch {
            writes: range.writes != 0,
            ..Touch::read(range.address, range.bytes)
        };
        let touches = ranges
            .list(count as usize)?
            .into_iter()
            .map(touch)
            .collect();
        let mut state = lock()?;
        let key = state.stream(Via::Legacy, stream)?;
        crate::work::submit(&mut state, key, Work::Kernel { touches, duration })
    })
}

/// Number of findings of the oracle so far.
#[unsafe(no_mangle)]
pub extern "C" fn standin_findings() -> u64 {
    crate::report::count()
}

/// What was done so far to the memory at these addresses counts no more: no finding comes of it.
#[unsafe(no_mangle)]
pub extern "C" fn standin_forgive(address: u64, bytes: u64) -> CUresult {
    call("standin_forgive", || {
        let bytes = address..address.saturating_add(bytes);
        lock()?.model.forgive(bytes);
        Ok(())
    })
}

/// The most bytes of a device that were taken at a time since the last call.
#[unsafe(no_mangle)]
pub extern "C" fn standin_peak(device: i32, bytes: Out<u64>) -> CUresult {
    call("standin_peak", || {
        let mut state = lock()?;
        let device = state.device(device)?;
        bytes.put(std::mem::replace(&mut device.peak, device.used))
    })
}

/// Moves the driver's clock forward by `nanos` nanoseconds: work ends that much earlier.
#[unsafe(no_mangle)]
pub extern "C" fn standin_advance(nanos: u64) -> CUresult {
    call("standin_advance", || {
        crate::state::advance(nanos);
        Ok(())
    })
}

/// Calls are counted from here on by the faults of `STANDIN_FAULT` that say so.
#[unsafe(no_mangle)]
pub extern "C" fn standin_mark() {
    crate::fault::mark();
}

/// Number of calls that a fault of `STANDIN_FAULT` has hit: in the calling thread, or in all threads.
#[unsafe(no_mangle)]
pub extern "C" fn standin_hits(everywhere: i32) -> u64 {
    let (all, here) = crate::fault::hits();
    if everywhere != 0 { all } else { here }
}

/// Writes a line for each driver function called so far, with the number of calls, to a descriptor.
/// Counted if `STANDIN_COUNT` is set.
#[unsafe(no_mangle)]
pub extern "C" fn standin_calls(descriptor: i32) {
    let text = crate::fault::calls();
    // SAFETY: the text is as long as it says. A short write leaves a short list, which a reader sees.
    unsafe { libc::write(descriptor, text.as_ptr().cast(), text.len()) };
}

/// Whether address space is the stand-in's: device memory, or kept for it.
#[unsafe(no_mangle)]
pub extern "C" fn standin_owns(address: u64) -> i32 {
    lock().is_ok_and(|state| state.memory.owns(address)).into()
}
